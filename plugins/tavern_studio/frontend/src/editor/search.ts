import { namesOf } from "./languages";
import { tagsOf } from "./library";
import { nameOf, type NodeDefinition } from "./nodetypes";

const collator = new Intl.Collator("zh-Hans-CN-u-co-pinyin");
// The first character of each letter's characters in the order of pinyin; there are none for i, u and v.
const STARTS = [..."阿芭擦搭蛾发噶哈击喀垃妈拿哦啪期然撒塌挖昔压匝"];
const LETTERS = [..."abcdefghjklmnopqrstwxyz"];

/** Return a text with each Chinese character as the first letter of its pinyin. */
function initials(text: string): string {
  return [...text]
    .map((character) => {
      if (!/\p{Script=Han}/u.test(character)) return character;
      let letter = "";
      for (const [index, start] of STARTS.entries()) {
        if (collator.compare(character, start) < 0) break;
        letter = LETTERS[index] ?? "";
      }
      return letter;
    })
    .join("");
}

const texts = new WeakMap<NodeDefinition, string>();

function textOf(definition: NodeDefinition): string {
  let text = texts.get(definition);
  if (text === undefined) {
    const names = [nameOf(definition, definition.type), ...namesOf(definition)].map((name) => name.toLowerCase());
    text = [
      ...names,
      ...names.map(initials),
      definition.type,
      definition.namespace,
      definition.category,
      definition.description,
      ...tagsOf(definition),
    ]
      .join(" ")
      .toLowerCase();
    texts.set(definition, text);
  }
  return text;
}

/** Return the types that have all words, those whose name begins with the first word before the others. */
export function searchNodes(definitions: NodeDefinition[], words: string): NodeDefinition[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = definitions.filter((one) => !one.isTest && wanted.every((word) => textOf(one).includes(word)));
  const first = wanted[0];
  if (first === undefined) return found;
  const rank = (one: NodeDefinition) =>
    textOf(one).startsWith(first) || one.type.toLowerCase().startsWith(first) ? 0 : 1;
  return found.sort((a, b) => rank(a) - rank(b));
}
