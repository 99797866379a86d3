// Search from disk.  Browsers start no worker from file://, so a page there runs the script of the worker in a hidden
// frame instead, which looks the same from both ends.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    #waiting = []
    #scope = null

    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html>"
      frame.addEventListener("load", () => {
        const scope = frame.contentWindow
        const load = address => new Promise((done, failed) => {
          const script = scope.document.createElement("script")
          script.src = address
          script.onload = done
          script.onerror = failed
          scope.document.head.append(script)
        })
        scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        scope.importScripts = (...addresses) =>
          addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve())
        load(new URL(url, document.baseURI).href).then(() => {
          this.#scope = scope
          this.#waiting.splice(0).forEach(data => this.postMessage(data))
        })
      }, { once: true })
      document.body.append(frame)
    }

    postMessage(data) {
      if (this.#scope) {
        // A worker answers later, never before the call returns.
        setTimeout(() => this.#scope.dispatchEvent(new MessageEvent("message", { data })))
      } else {
        this.#waiting.push(data)
      }
    }

    terminate() {}
  }
