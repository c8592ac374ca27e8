/** A plugin as the registry knows it: whose something is, and to whom its mistakes are counted. */
export interface Owner {
  readonly name: string;
  /** The name that people read. */
  readonly title: string;
  /** Count a mistake against it; `where` says what of it made the mistake. */
  fail(where: string, error: unknown): void;
  /** Whether its code took part in an error. */
  owns(error: unknown): boolean;
}
