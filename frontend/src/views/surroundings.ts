// Whether the surroundings of a view are dark: JupyterLab and VS Code declare it, elsewhere the system does.

const WATCHED = ['class', 'theme', 'data-jp-theme-light', 'data-vscode-theme-kind']

/** The theme that the page declares, or null. */
export function saidDark({ body, documentElement }: Document): boolean | null {
  const jupyter = body.dataset.jpThemeLight
  if (jupyter === 'true' || jupyter === 'false') return jupyter === 'false'
  const code = body.dataset.vscodeThemeKind ?? [...body.classList].find((name) => /^vscode-(dark|light|high-contrast)/.test(name))
  if (code) return code.startsWith('vscode-dark') || code === 'vscode-high-contrast'
  const colab = documentElement.getAttribute('theme')
  return colab === 'dark' || colab === 'light' ? colab === 'dark' : null
}

export interface Surroundings {
  isDark: () => boolean
  close: () => void
}

export function watchSurroundings(changed: () => void): Surroundings {
  const system = matchMedia('(prefers-color-scheme: dark)')
  const marks = new MutationObserver(changed)
  for (const element of [document.body, document.documentElement]) marks.observe(element, { attributes: true, attributeFilter: WATCHED })
  system.addEventListener('change', changed)
  return {
    isDark: () => saidDark(document) ?? system.matches,
    close() {
      marks.disconnect()
      system.removeEventListener('change', changed)
    },
  }
}
