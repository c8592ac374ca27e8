export default {
  en: {
    runs: {
      list: "Runs of the project",
      empty: "Nothing was run yet. Open a workflow and press Run.",
      choose: "Choose a run to see what went in, what came out, and how long each node took.",
      open: "Open the workflow",
      rerun: "Run again",
      retry: "Continue from the failed node",
      inputs: "Inputs",
      outputs: "Outputs",
      nodes: "Nodes in time",
    },
  },
  zh: {
    runs: {
      list: "此项目的运行",
      empty: "还没有运行过。打开一个工作流，按“运行”。",
      choose: "选择一次运行，查看输入、输出和每个节点的用时。",
      open: "打开工作流",
      rerun: "重新运行",
      retry: "从失败的节点继续",
      inputs: "输入",
      outputs: "输出",
      nodes: "节点时间线",
    },
  },
};
