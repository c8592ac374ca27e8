import { isMessage, t } from "../i18n";
import type { Command } from "../registry/commands";

/** Return a command's name in the language of the page. */
export function titleOf(command: Command): string {
  return isMessage(command.title) ? t(command.title) : command.title;
}
