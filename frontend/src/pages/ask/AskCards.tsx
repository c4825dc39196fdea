// The answers, as cards before all charts.

import { useEffect, useRef } from 'preact/hooks'
import { useDetail } from '../../data/details'
import { byKey } from '../../data/runs'
import { AskPanel } from './AskPanel'
import { change, panels, removeLoose } from './asked'
import type { AskedPanel } from './panels'

export function AskCards() {
  const all = panels.value
  const box = useRef<HTMLElement>(null)
  const n = useRef(all.length)
  useEffect(() => {
    if (all.length > n.current) box.current?.scrollIntoView({ block: 'nearest' })
    n.current = all.length
  }, [all.length])
  const n_loose = all.filter(({ pinned }) => !pinned).length
  const live = [...new Set(all.flatMap(({ streams }) => streams.map(({ run }) => run)))].filter((key) => byKey.value.get(key)?.live)
  return (
    <section class="ask-cards" aria-label="Asked" ref={box}>
      {live.map((key) => (
        <Follow key={key} run={key} />
      ))}
      <h2 class="section-head">
        <span class="section-title">Asked</span>
        <span class="muted">{all.length}</span>
        {n_loose > 1 && (
          <button type="button" class="text-button" onClick={removeLoose}>
            Remove {n_loose === all.length ? 'all' : `${n_loose} that are not pinned`}
          </button>
        )}
      </h2>
      <div class="ask-panels">
        {keyed(all).map(([key, panel], i) => (
          <AskPanel key={key} panel={panel} onChange={(next) => change(i, next)} />
        ))}
      </div>
    </section>
  )
}

/** A panel is known by its first stream, and by how many like it stand before. */
function keyed(all: readonly AskedPanel[]): [string, AskedPanel][] {
  const seen = new Map<string, number>()
  return [...all].reverse().map((panel): [string, AskedPanel] => {
    const { run, query } = panel.streams[0]!
    const n = seen.get(`${run}|${query}`) ?? 0
    seen.set(`${run}|${query}`, n + 1)
    return [`${run}|${query}|${n}`, panel]
  }).reverse()
}

/** Keeps the details of a run fresh for the cards that query it. */
function Follow({ run }: { run: string }) {
  useDetail(run)
  return null
}
