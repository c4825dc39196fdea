import type { RefObject } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

const MOVES: Readonly<Record<string, [rows: number, buttons: number]>> = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }

/** Makes the buttons in the rows of a box one tab stop: arrow keys go from row to row, and from button to button. */
export function useOneStop(): RefObject<HTMLDivElement> {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const root = box.current!
    let here: HTMLElement | null = null
    const settle = () => {
      const all = [...root.querySelectorAll<HTMLElement>('.rows-row button')]
      const stop = here && all.includes(here) ? here : all[0]
      for (const one of all) one.tabIndex = one === stop ? 0 : -1
    }
    const onFocus = ({ target }: FocusEvent) => {
      if (!(target as HTMLElement).matches('.rows-row button')) return
      here = target as HTMLElement
      settle()
    }
    const onKey = (event: KeyboardEvent) => {
      const move = MOVES[event.key]
      const row = (event.target as HTMLElement).closest('.rows-row')
      if (!move || !row || event.altKey || event.ctrlKey || event.metaKey) return
      const inRow = (of: Element) => [...of.querySelectorAll<HTMLElement>('button')]
      const at = inRow(row).indexOf(event.target as HTMLElement)
      const next = move[0] > 0 ? row.nextElementSibling : move[0] < 0 ? row.previousElementSibling : row
      if (!next || at < 0) return
      const buttons = inRow(next)
      // Some buttons are shown only once their row has the focus.
      buttons[0]?.focus()
      buttons[Math.max(0, Math.min(buttons.length - 1, at + move[1]))]?.focus()
      event.preventDefault()
    }
    // Rows come and go as the box scrolls.
    const rows = new MutationObserver(settle)
    rows.observe(root, { childList: true, subtree: true })
    root.addEventListener('focusin', onFocus)
    root.addEventListener('keydown', onKey)
    settle()
    return () => {
      rows.disconnect()
      root.removeEventListener('focusin', onFocus)
      root.removeEventListener('keydown', onKey)
    }
  }, [])
  return box
}
