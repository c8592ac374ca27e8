/** Give a value to the person as a JSON file. */
export function download(name: string, value: unknown): void {
  save(name, new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
}

/** Give bytes to the person as a file. */
export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href)); // the browser has begun to read it by then
}

/** Let the person choose files; none where they changed their mind. */
export function chooseFiles(accept: string): Promise<File[]> {
  const field = document.createElement("input");
  Object.assign(field, { type: "file", accept, multiple: true });
  return new Promise((done) => {
    field.onchange = () => done([...(field.files ?? [])]);
    field.oncancel = () => done([]);
    field.click();
  });
}
