export default {
  en: {
    tools: {
      list: "Tools of the project",
      empty: "No tool matches.",
      choose: "Choose a tool to see what it does, and to try it.",
      missing: "There is no tool {id}.",
      unavailable: "unavailable",
      approvals: "Waiting for approval",
      noApprovals: "Nothing waits for approval.",
      asks: "asks a person",
      try: "Try it",
      call: "Call",
      example: "Example {n}",
      result: "Result",
    },
  },
  zh: {
    tools: {
      list: "此项目的工具",
      empty: "没有匹配的工具。",
      choose: "选择一个工具，查看它的用途并试用。",
      missing: "没有工具 {id}。",
      unavailable: "不可用",
      approvals: "等待批准",
      noApprovals: "没有等待批准的调用。",
      asks: "需要批准",
      try: "试用",
      call: "调用",
      example: "示例 {n}",
      result: "结果",
    },
  },
};
