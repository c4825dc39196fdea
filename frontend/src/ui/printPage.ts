// Printing: the page is laid out for paper, waits until all of it is drawn, and prints.

import { effect } from '@preact/signals'
import { printing } from '../views/printing'

const LOOK_MS = 100
/** What has not come after this time is printed as it is. */
const PATIENCE_MS = 60_000

const waits = (): boolean => document.querySelector('.panel-wait, [aria-busy=true]') !== null || [...document.images].some(({ complete }) => !complete)
const rest = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, LOOK_MS))

/** Print all of the page, not only what is in sight. */
export async function printPage(): Promise<void> {
  printing.value = true
  const until = Date.now() + PATIENCE_MS
  // Twice, since what comes may bring more to wait for.
  for (let n_still = 0; n_still < 2 && Date.now() < until; n_still = waits() ? 0 : n_still + 1) await rest()
  print()
}

/** Lay the page out for paper whenever the browser prints; its own key prints all of the page. */
export function followPrinting(): void {
  addEventListener('beforeprint', () => (printing.value = true))
  addEventListener('afterprint', () => (printing.value = false))
  addEventListener('keydown', (event) => {
    if (event.key !== 'p' || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return
    event.preventDefault()
    void printPage()
  })
  effect(() => void document.documentElement.toggleAttribute('data-printing', printing.value))
}
