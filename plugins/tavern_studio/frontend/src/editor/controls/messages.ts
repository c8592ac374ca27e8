export default {
  en: {
    controls: {
      pressed: "Press a button",
      suggestions: "Suggestions for {name}",
      defaultModel: "Default model",
      notSetUp: "{name} (not set up here)",
      editHere: "Edit in the inspector",
      editIn: "Edit {name} in the inspector",
      upload: "Choose a file",
      uploading: "Uploading…",
      dropHere: "or drop or paste it here",
      takeAway: "Take the file of {name} away",
      number: {
        none: "This is no number.",
        whole: "A whole number is needed.",
        min: "A number from {min} is needed.",
        max: "A number up to {max} is needed.",
        range: "A number from {min} to {max} is needed.",
      },
    },
  },
  zh: {
    controls: {
      pressed: "按下按钮",
      suggestions: "{name} 的建议",
      defaultModel: "默认模型",
      notSetUp: "{name}（此处未设置）",
      editHere: "在检查器中编辑",
      editIn: "在检查器中编辑 {name}",
      upload: "选择文件",
      uploading: "正在上传…",
      dropHere: "或拖放、粘贴到这里",
      takeAway: "移除 {name} 的文件",
      number: {
        none: "这不是数字。",
        whole: "需要整数。",
        min: "需要不小于 {min} 的数字。",
        max: "需要不大于 {max} 的数字。",
        range: "需要 {min} 到 {max} 之间的数字。",
      },
    },
  },
};
