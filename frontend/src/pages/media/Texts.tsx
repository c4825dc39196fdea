// Texts as a log with a search. Drawn as Markdown or as written, a text never becomes HTML. Where it is searched, it is shown as written.

import { useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { useTexts } from '../../data/media'
import { labelOf } from '../../data/runs'
import { isOfMachine } from '../../data/tags'
import type { Run } from '../../data/types'
import { at } from '../../state/state'
import { dateTime, number, timeOf } from '../../views/format'
import { saveFile } from '../../views/export'
import { IconButton } from '../../ui/parts'
import { Markdown } from './Markdown'
import { RunTitle } from './RunTitle'
import { splitBy } from './tags'

const NEAR_PX = 40

export function Texts({ run, tag, series, markdown }: { run: Run; tag: string; series: string; markdown: boolean }) {
  const found = useTexts(run.key, series)
  const words = at.words.value
  const all = found.value ?? []
  const texts = useMemo(() => {
    const wanted = words.toLowerCase()
    return wanted ? all.filter(({ text }) => text.toLowerCase().includes(wanted)) : all
  }, [found.value, words])
  const box = useRef<HTMLDivElement>(null)
  const atEnd = useRef(true)
  // Who reads the newest goes on to read the newest; who reads further up is left there.
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight
  }, [texts])
  const download = () => saveFile(`${run.name}-${tag}.txt`, all.map(({ step, wall_time, text }) => `[${isOfMachine(tag) ? dateTime(wall_time) : `step ${step}`}] ${text}`).join('\n') + '\n')
  return (
    <article class="media-run media-texts" aria-label={`${tag} of ${labelOf(run.key)}`}>
      <RunTitle run={run} note={words ? `${texts.length.toLocaleString('en')} of ${all.length.toLocaleString('en')}` : `${all.length.toLocaleString('en')} ${all.length === 1 ? 'text' : 'texts'}`}>
        <IconButton icon="download" label={`Download the texts of ${run.name}`} disabled={!all.length} onClick={download} />
      </RunTitle>
      {found.problem && <p class="field-problem media-problem">{found.problem}</p>}
      <div
        ref={box}
        class="media-log"
        role="log"
        aria-label={`Texts of ${run.name}`}
        tabIndex={0}
        onScroll={({ currentTarget: c }) => (atEnd.current = c.scrollHeight - c.scrollTop - c.clientHeight < NEAR_PX)}
      >
        {texts.map(({ step, wall_time, text }, i) => (
          <div key={`${step} ${wall_time} ${i}`} class="media-text">
            <span class="muted" title={dateTime(wall_time)}>
              {/* Of what a program printed, people look for times. */}
              {isOfMachine(tag) ? timeOf(wall_time) : number(step, 12)}
            </span>
            {markdown && !words ? <Markdown text={text} /> : <span>{splitBy(text, words).map((part, k) => (k % 2 ? <mark key={k}>{part}</mark> : part))}</span>}
          </div>
        ))}
        {!texts.length && <p class="muted media-none">{!found.value ? 'Reading …' : words ? 'No text has these words.' : 'No text yet.'}</p>}
      </div>
    </article>
  )
}
