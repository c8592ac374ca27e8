export default {
  en: {
    sharing: {
      unknown: "{name} is neither a workflow, a conversation, an agent, a character nor a knowledge base.",
      plainPicture: "{name} is a picture that holds neither a workflow nor a character.",
      nothingDrawn: "The workflow has no nodes: there is nothing to draw.",
      picture: "Export as a picture",
      link: "Copy a link",
      linkCopied: "The link is copied.",
    },
  },
  zh: {
    sharing: {
      unknown: "{name} 不是工作流、对话、智能体、角色或知识库。",
      plainPicture: "{name} 是一张图片，里面没有工作流或角色。",
      nothingDrawn: "工作流没有节点：没有可画的内容。",
      picture: "导出为图片",
      link: "复制链接",
      linkCopied: "链接已复制。",
    },
  },
};
