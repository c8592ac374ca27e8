export default {
  en: {
    files: {
      upload: "Upload",
      uploaded: "{name} is uploaded.",
      empty: "Nothing is in this folder. Upload a file, or drop it here.",
      size: "Size",
      changed: "Changed",
      delete: "Delete {name}",
      lost: "It cannot be brought back.",
    },
  },
  zh: {
    files: {
      upload: "上传",
      uploaded: "{name} 已上传。",
      empty: "此文件夹是空的。上传一个文件，或把它拖到这里。",
      size: "大小",
      changed: "修改时间",
      delete: "删除 {name}",
      lost: "删除后无法恢复。",
    },
  },
};
