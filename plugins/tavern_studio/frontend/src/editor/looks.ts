import { Box, Puzzle } from "@lucide/vue";
import type { Component } from "vue";
import { hueOf, type Hue } from "../kit/hues";
import { ICONS } from "../kit/icons";
import { layersOf } from "../registry/layers";
import { layered } from "../registry/components";
import { iconTarget } from "../registry/renderers";
import { fullType, type NodeDefinition } from "./nodetypes";

/** How a node type is known at a glance: one of eight hues, which `tokens.css` has, and an icon. */
export interface NodeLook {
  hue: Hue;
  icon: Component;
}

/** What a category says, by a word in its name. The first that is found counts. */
const CATEGORIES: [RegExp, Hue, string][] = [
  [/agent|智能体|代理/i, "pink", "bot"],
  [/assistant|助手/i, "pink", "sparkles"],
  [/llm|model|chat|模型|对话/i, "violet", "message"],
  [/knowledge|world|知识/i, "amber", "book"],
  [/number|math|数学|数字/i, "amber", "calculator"],
  [/flow|logic|控制|流程/i, "green", "branch"],
  [/stream|流/i, "blue", "stream"],
  [/list|列表/i, "teal", "list"],
  [/json|object/i, "teal", "braces"],
  [/data|table|数据/i, "teal", "table"],
  [/text|string|文本/i, "blue", "text"],
  [/image|picture|photo|图/i, "red", "image"],
  [/audio|sound|speech|音/i, "red", "audio"],
  [/video|视频/i, "red", "video"],
  [/file|文件/i, "slate", "file"],
  [/load|加载/i, "slate", "folder"],
  [/loop|循环/i, "green", "repeat"],
  [/group|组/i, "slate", "group"],
  [/process|处理/i, "green", "wand"],
  [/time|date|schedule|时间/i, "amber", "clock"],
  [/web|http|network|网/i, "blue", "globe"],
  [/tool|util|工具/i, "slate", "wrench"],
];

/** The look of a category: what its name says, or else a hue that stays the same for that name. */
export function categoryLook(category: string): NodeLook {
  const [root = ""] = category.split("/");
  const found = CATEGORIES.find(([words]) => words.test(root));
  return found ? { hue: found[1], icon: ICONS[found[2]]! } : { hue: hueOf(root), icon: root ? Puzzle : Box };
}

/** The look of a node type: a plugin's own icon, the one that its definition names, or that of its category. */
export function lookOf(definition: NodeDefinition | undefined): NodeLook {
  if (definition === undefined) return { hue: "slate", icon: Box };
  const look = categoryLook(definition.category ?? "");
  const named = ICONS[definition.icon ?? ""] ?? look.icon;
  const target = iconTarget(fullType(definition));
  const layer = layersOf(target).override;
  return { hue: look.hue, icon: layer ? layered(target, layer, named, named) : named };
}
