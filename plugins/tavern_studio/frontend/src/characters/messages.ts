export default {
  en: {
    characters: {
      persona: "Who you are",
      about: "About you",
      nameHint: "What characters call you, in conversations that begin from now on.",
      aboutHint: "What characters know of you.",
      begin: "Let {name} begin",
      card: "Export as a card",
      imported: "{name} is there.",
      unsupported: "{name} is there. Kept, without effect: {fields}.",
    },
  },
  zh: {
    characters: {
      persona: "您的身份",
      about: "关于您",
      nameHint: "角色对您的称呼，用于此后开始的对话。",
      aboutHint: "角色对您的了解。",
      begin: "让 {name} 先说",
      card: "导出为角色卡",
      imported: "{name} 已导入。",
      unsupported: "{name} 已导入。保留但不起作用：{fields}。",
    },
  },
};
