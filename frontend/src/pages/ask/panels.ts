// The panels of the page Ask, as they stand in the URL: `run|view|query`.

export interface Asked {
  run: string
  /** The view that the reader chose instead of the server's; '' for the server's. */
  view: string
  query: string
}

export function readAsked(text: string): Asked | null {
  const [, run, view, query] = /^([^|]*)\|([^|]*)\|(.*)$/s.exec(text) ?? []
  return run && query ? { run, view: view ?? '', query } : null
}

export const writeAsked = ({ run, view, query }: Asked): string => `${run}|${view}|${query}`
