declare module "virtual:access" {
  /** Which access an operation needs, for all that need another one than `read`; see `vite.config.ts`. */
  const access: Record<string, "create" | "operate" | "public">;
  export default access;
}
