import { inLine } from "../kit/values/seen";

/** The tool by which an agent asks a person, and the platform's name for it. */
export const ASKS = new Set(["system:request_user_interaction", "RequestUserInteractionTool"]);

/** What came of a question, by what its agent reads of it: the answer, or why there is none. */
export function answerOf(result: string): { answer?: unknown; why?: "nobody" | "declined" } {
  const output = /^Tool \S+ executed successfully\. Output: (.*)$/s.exec(result)?.[1];
  if (output !== undefined) {
    try {
      return { answer: (JSON.parse(output) as { answer?: unknown }).answer };
    } catch {
      return { answer: output };
    }
  }
  if (result.includes("Error type: TimeoutError")) return { why: "nobody" };
  return result.includes("Error type: ApprovalRefused") ? { why: "declined" } : {};
}

/** An answer as people read it: choices with commas between them, each field of a form in a line. */
export function linesOf(answer: unknown): string {
  if (typeof answer === "string") return answer;
  if (Array.isArray(answer) && answer.every((one) => typeof one === "string")) return answer.join(", ");
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) return inLine(answer, 400);
  const shown = (value: unknown) => (typeof value === "string" ? value : inLine(value, 200));
  return Object.entries(answer)
    .map(([key, value]) => `${key}: ${shown(value)}`)
    .join("\n");
}
