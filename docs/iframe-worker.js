// The search runs in a Worker, which browsers do not start for pages that are opened from a folder. There it runs in a
// hidden frame instead; pages from a server keep their workers.
if (location.protocol === "file:") {
  const start = `
    postMessage = (data) => parent.postMessage(data, "*");
    importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((loaded) => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = loaded;
      document.body.appendChild(script);
    })), Promise.resolve());`;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const { contentWindow: inside } = this.frame;
      this.ready = new Promise((loaded) => { this.frame.onload = loaded; });
      this.heard = ({ source, data }) => {
        if (source !== inside) return;
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      addEventListener("message", this.heard);
      inside.document.open();
      inside.document.write(`<body><script>${start}</script><script src="${url}"></script></body>`);
      inside.document.close();
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      removeEventListener("message", this.heard);
      this.frame.remove();
    }
  };
}
