export default {
  en: {
    sandbox: {
      left: "The panel went to another page, and was closed.",
      late: "The panel did not begin within ten seconds, and was closed.",
      failed: "The panel could not begin: {message}",
      closed: {
        flood: "The panel asked too much at once, and was closed.",
        message: "The panel sent what is no message, and was closed.",
      },
    },
  },
  zh: {
    sandbox: {
      left: "面板转到了别的页面，已被关闭。",
      late: "面板在十秒内没有启动，已被关闭。",
      failed: "面板无法启动：{message}",
      closed: {
        flood: "面板一次提出的请求过多，已被关闭。",
        message: "面板发送的内容不是消息，已被关闭。",
      },
    },
  },
};
