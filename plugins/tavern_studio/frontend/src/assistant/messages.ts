export default {
  en: {
    assistant: {
      title: "Assistant",
      name: "the assistant",
      new: "New conversation",
      begin:
        "Say what the workflow should do. Changes are shown before they are made, and every one is one step for undo.",
      asksFirst: "Show changes before they are made",
      suggest: {
        explain: "Explain this workflow",
        failed: "Why did this run fail?",
        faster: "Make it faster",
      },
      stage: {
        proposed: "Proposed changes",
        applied: "Changed",
        refused: "Nothing was changed",
        unsaved: "The workflow was changed here at the same moment; nothing was overwritten.",
      },
      refused: "The workflow has changed since, in the same places. Ask again for the workflow as it is now.",
      accept: "Apply",
      keep: "Keep",
      discard: "Discard",
      show: "Show on the canvas",
      kind: { added: "new", changed: "changed", removed: "removed" },
      what: {
        edge: "{n} edge | {n} edges",
        interface: "input or output",
        comment: "note",
        value: "value",
        group: "group",
        node: "node",
      },
    },
  },
  zh: {
    assistant: {
      title: "助手",
      name: "助手",
      new: "新对话",
      begin: "说出这个工作流应当做什么。修改会先展示再执行，每次修改都可以一步撤销。",
      asksFirst: "先展示修改，再执行",
      suggest: {
        explain: "解释这个工作流",
        failed: "这次运行为什么失败？",
        faster: "让它更快",
      },
      stage: {
        proposed: "建议的修改",
        applied: "已修改",
        refused: "没有做任何修改",
        unsaved: "这里同时也修改了工作流，没有覆盖任何内容。",
      },
      refused: "工作流的同一处在此之后已被修改。请针对现在的工作流重新提问。",
      accept: "应用",
      keep: "保留",
      discard: "放弃",
      show: "在画布上显示",
      kind: { added: "新增", changed: "修改", removed: "删除" },
      what: { edge: "{n} 条连线", interface: "输入或输出", comment: "便签", value: "值", group: "组", node: "节点" },
    },
  },
};
