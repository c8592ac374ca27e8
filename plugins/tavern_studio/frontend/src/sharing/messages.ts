export default {
  en: {
    sharing: {
      imported: "Imported: {title}, {name}",
      report: "Imported: {title}",
      more: "and {count} more",
      next: "What to do next",
      withoutEffect: "What has no effect here",
      close: "Close",
      nothingDrawn: "The workflow has no nodes: there is nothing to draw.",
      picture: "Export as a picture",
      link: "Copy a link",
      linkCopied: "The link is copied.",
    },
  },
  zh: {
    sharing: {
      imported: "已导入：{title}，{name}",
      report: "已导入：{title}",
      more: "以及另外 {count} 项",
      next: "接下来要做的事",
      withoutEffect: "在此不起作用的内容",
      close: "关闭",
      nothingDrawn: "工作流没有节点：没有可画的内容。",
      picture: "导出为图片",
      link: "复制链接",
      linkCopied: "链接已复制。",
    },
  },
};
