// How Plotly's figures are drawn where these views are mounted: in frames that can reach nothing of the page.

/** The media type of their JSON. */
export const PLOTLY = 'application/vnd.plotly.v1+json'

export interface PlotlySource {
  /** The document of the frame: its address, or its text. */
  frame: { src: string } | { srcdoc: string }
  /** Plotly's script; rejects with a reason where Plotly is not installed. */
  script: () => Promise<string>
}

let found: PlotlySource | null = null

/** Null where no figure can be drawn, as in a page that was saved as a file. */
export const plotlySource = (): PlotlySource | null => found

export function drawPlotlyWith(source: PlotlySource): void {
  found = source
}

/** The title of a figure, without its markup. */
export function titleOf(json: string): string {
  try {
    const { title } = (JSON.parse(json) as { layout?: { title?: string | { text?: string } } }).layout ?? {}
    const text = typeof title === 'string' ? title : title?.text
    return typeof text === 'string' ? text.replace(/<[^<>]*>/g, ' ').trim() || 'Figure' : 'Figure'
  } catch {
    return 'Figure'
  }
}

/** What is fetched once; after a failure, with the next figure again. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | null = null
  return () => {
    loading ??= load().catch((error: unknown) => {
      loading = null
      throw error
    })
    return loading
  }
}
