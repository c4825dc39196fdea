// Work that is done again whenever there is news: one at a time, with a rest after each, and not in a hidden tab.

/** Long enough that a run which grows without a pause does not keep the page busy; a reader sees it as at once. */
export const REST_MS = 300
/** After work that took long, for instance a reply of many megabytes, this many times as long passes. */
const REST = 2

export interface Repeated {
  /** Work, now or after the rest; news that comes meanwhile is one more turn. */
  tell: () => void
  stop: () => void
}

/** Repeat some work, which must not fail. */
export function repeated(work: () => Promise<void>, rest_ms = REST_MS): Repeated {
  let [news, busy, stopped, timer] = [false, false, false, 0]
  const turn = async () => {
    if (!news || busy || stopped || document.hidden) return
    ;[news, busy] = [false, true]
    const began_ms = performance.now()
    await work()
    const pause_ms = Math.max(rest_ms, REST * (performance.now() - began_ms))
    if (!stopped) timer = window.setTimeout(() => ((busy = false), void turn()), pause_ms)
  }
  const wake = () => void turn()
  document.addEventListener('visibilitychange', wake)
  return {
    tell: () => ((news = true), void turn()),
    stop: () => {
      stopped = true
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', wake)
    },
  }
}
