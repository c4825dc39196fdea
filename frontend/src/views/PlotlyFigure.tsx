// A figure of Plotly. It comes from a run, which nobody has to trust, so it is drawn in a frame without an origin: nothing
// in it can reach the page or fetch anything. Script and figure go there as messages; see views/plotly_frame.py.

import type { MutableRef } from 'preact/hooks'
import { useEffect, useRef, useState } from 'preact/hooks'
import { plotlySource } from './plotly'

/** Figures this far below what is in sight are drawn already, in CSS pixels. */
const AHEAD = 300

interface FigureProps {
  json: string
  name: string
  /** What it shows, in words, where it cannot be drawn. */
  about: string
  /** As CSS writes it. */
  height: string
  /** Set to what makes a PNG of the figure, once it is drawn. */
  png?: MutableRef<(() => Promise<Blob>) | null>
}

interface Reply {
  ready?: boolean
  id?: number
  drawn?: boolean
  picture?: string
  problem?: string
}

export function PlotlyFigure({ json, name, about, height, png }: FigureProps) {
  const source = plotlySource()
  const box = useRef<HTMLDivElement>(null)
  const near = useNear(box)
  const [problem, setProblem] = useState('')
  const [drawn, setDrawn] = useState(false)
  const { frame, n_ready, ask } = useFrame()
  useEffect(() => {
    if (!n_ready || !source) return
    let gone = false
    source
      .script()
      .then((script) => (gone ? null : ask({ script, json })))
      .then(
        (reply) => {
          if (gone || !reply) return
          setDrawn(true)
          setProblem(reply.problem ? told(reply.problem) : '')
          if (png) png.current = async () => (await fetchedFrom((await ask({})).picture)) ?? Promise.reject(new Error('Plotly made no picture'))
        },
        (error: unknown) => gone || setProblem(error instanceof Error ? error.message : String(error)),
      )
    return () => void (gone = true)
  }, [n_ready, json])
  return (
    <div class={`plotly-figure ${drawn && !problem ? 'is-drawn' : ''}`} ref={box} style={{ height }}>
      {source && near && <iframe ref={frame} title={name} sandbox="allow-scripts" {...source.frame} />}
      {(!source || problem) && (
        <p class="plotly-words" role={problem ? 'alert' : undefined}>
          <span>{about}</span>
          <span class="muted">{problem || 'A figure of Plotly, which is drawn on the page of a server only.'}</span>
        </p>
      )}
    </div>
  )
}

const told = (problem: string): string => `Plotly cannot draw this figure: ${problem}${/fetch/i.test(problem) ? '. Figures fetch nothing here: download this one as JSON' : ''}`

/** Whether an element is in sight, or was once. */
function useNear(box: MutableRef<HTMLElement | null>): boolean {
  const [near, setNear] = useState(false)
  useEffect(() => {
    const watch = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && setNear(true), { rootMargin: `${AHEAD}px` })
    watch.observe(box.current!)
    return () => watch.disconnect()
  }, [])
  return near
}

/** A frame, how often its document was loaded, and what sends it a message and returns its reply. */
function useFrame() {
  const frame = useRef<HTMLIFrameElement>(null)
  const waiting = useRef(new Map<number, (reply: Reply) => void>())
  const n_asked = useRef(0)
  const [n_ready, setReady] = useState(0)
  useEffect(() => {
    const take = ({ source, data }: MessageEvent<Reply | null>) => {
      if (!source || source !== frame.current?.contentWindow || typeof data !== 'object' || !data) return
      if (data.ready) return setReady((n) => n + 1)
      waiting.current.get(Number(data.id))?.(data)
      waiting.current.delete(Number(data.id))
    }
    addEventListener('message', take)
    return () => removeEventListener('message', take)
  }, [])
  const ask = (message: object): Promise<Reply> =>
    new Promise((resolve) => {
      const id = n_asked.current++
      waiting.current.set(id, resolve)
      frame.current?.contentWindow?.postMessage({ ...message, id }, '*') // it has no origin to name
    })
  return { frame, n_ready, ask }
}

/** The bytes of a PNG that the frame wrote as text, which is not believed to be one of anything else. */
async function fetchedFrom(url: unknown): Promise<Blob | null> {
  const [, base64] = /^data:image\/png;base64,([A-Za-z0-9+/=]+)$/.exec(String(url)) ?? []
  return base64 ? new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], { type: 'image/png' }) : null
}
