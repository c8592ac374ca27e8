export default {
  en: {
    manual: {
      list: "Pages",
      nothing: "Nothing fits these words.",
      missing: "There is no page {page}.",
      english: "This page is in English.",
      contents: "On this page",
    },
  },
  zh: {
    manual: {
      list: "页面",
      nothing: "没有符合这些词的内容。",
      missing: "没有页面 {page}。",
      english: "本页为英文。",
      contents: "本页内容",
    },
  },
};
