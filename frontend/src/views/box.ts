// A box of the page's own within an element of another page: in a shadow root, so that styles stay inside.

/** Make the box in a host; it has the class `name`. */
export function boxIn(host: HTMLElement, css: string, name: string): HTMLElement {
  host.style.cssText = 'display: block; width: 100%'
  // Keep JupyterLab's shortcuts from acting on its cells while the box has the focus.
  host.dataset.lmSuppressShortcuts = 'true'
  const shadow = host.attachShadow({ mode: 'open' })
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(css)
  shadow.adoptedStyleSheets = [sheet]
  const box = shadow.appendChild(document.createElement('div'))
  box.className = name
  return box
}
