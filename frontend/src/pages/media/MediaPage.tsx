// Images, figures, sounds, tables and texts, of the runs that are drawn, side by side.

import { useCallback, useEffect, useMemo, useState } from 'preact/hooks'
import { namedTag, useTagsOf } from '../../data/tags'
import { byKey, runs, shown } from '../../data/runs'
import { useSteps } from '../../data/tensors'
import type { Run, TagType } from '../../data/types'
import { at, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Empty, Search, Toggle } from '../../ui/parts'
import { placeOfStep, StepBar } from '../../ui/StepBar'
import { pickerOpen, TagPicker } from '../../ui/TagPicker'
import { NoRuns } from '../charts/Charts'
import { Full } from './Full'
import { openPicture, Pictures } from './Pictures'
import { SheetOf } from './SheetOf'
import { SoundsOf } from './SoundsOf'
import { mergedSteps, mergedTags, type MediaTag } from './tags'
import { Texts } from './Texts'

const MAX_RUNS = 24

export function MediaPage() {
  if (runs.value === null) return <Empty title="Looking for runs …" />
  if (runs.value.length === 0) return <NoRuns />
  return <Media drawn={shown.value.slice(0, MAX_RUNS)} />
}

function Media({ drawn }: { drawn: readonly Run[] }) {
  const kept = useTagsOf(drawn.map(({ key }) => key))
  const tags = useMemo(() => mergedTags(kept.values), [kept.values])
  const tag = at.media.value ? namedTag(tags, at.media.value) : tags[0]
  const having = tag ? [...tag.runs.keys()].flatMap((key) => byKey.value.get(key) ?? []) : []
  return (
    <section class="media with-picker" aria-label="Images, figures, sounds, tables and texts">
      <TagPicker label="Image, figure, sound, table or text" tags={tags} chosen={tag?.name ?? ''} onTag={(media) => update({ media, full: '', rowsort: '' })} search={at.find.value} onSearch={(find) => update({ find })} empty={kept.loading ? 'Reading …' : 'Nothing to see in these runs.'} />
      <div class="picked">
        <button type="button" class="button picker-open" onClick={() => (pickerOpen.value = true)}>
          <Icon name="list" /> {tag?.tag ?? 'Choose'}
        </button>
        {kept.problem && (
          <p class="banner" role="alert">
            {kept.problem}
          </p>
        )}
        {tag ? tag.type === 'text' ? <TextPage tag={tag} runs={having} /> : <PicturePage key={tag.name} tag={tag} runs={having} /> : <Nothing drawn={drawn} loading={kept.loading} n={tags.length} />}
      </div>
    </section>
  )
}

function Nothing({ drawn, loading, n }: { drawn: readonly Run[]; loading: boolean; n: number }) {
  if (!drawn.length) return <Empty title="No run is visible">Choose runs in the list.</Empty>
  if (loading) return <Empty title="Reading the runs …" />
  if (n > 0) {
    return (
      <Empty title={`Nothing named ${at.media.value}`} mark={false}>
        <p>The visible runs have {n} others.</p>
        <button type="button" class="button" onClick={() => update({ media: '' })}>
          Show the first of them
        </button>
      </Empty>
    )
  }
  return (
    <Empty title="No images, figures, sounds, tables or texts">
      <p>The visible runs have none. Record some in the training:</p>
      <pre>{'run.log({"digits": sg.Images(pictures)}, step=step)\nrun.log({"curve": sg.Figure(png_bytes)}, step=step)\nrun.log({"speech": sg.Audio(samples, 16_000)}, step=step)\nrun.log({"worst": sg.Table(frame)}, step=step)\nrun.log({"note": "a text"}, step=step)'}</pre>
      <p>
        With <code>sg.init(…, facts=sg.Facts(console=True))</code> what the training prints is recorded, too.
      </p>
    </Empty>
  )
}

function TextPage({ tag, runs }: { tag: MediaTag; runs: readonly Run[] }) {
  const markdown = at.markdown.value === 'auto' ? runs.every(({ source }) => source === 'tensorboard') : at.markdown.value === 'on'
  return (
    <>
      <header class="tensor-head">
        <h2 title={tag.tag}>{tag.tag}</h2>
        <Toggle label="Markdown" title="Draw texts as Markdown" on={markdown} onChange={(on) => update({ markdown: on ? 'on' : 'off' })} />
        <Search label="Search in the texts" placeholder="Search in the texts" value={at.words.value} onChange={(words) => update({ words })} />
      </header>
      <div class="media-runs media-runs-texts">
        {runs.map((run) => (
          <Texts key={run.key} run={run} tag={tag.tag} series={tag.runs.get(run.key)!} markdown={markdown} />
        ))}
      </div>
    </>
  )
}

function PicturePage({ tag, runs }: { tag: MediaTag; runs: readonly Run[] }) {
  const [known, setKnown] = useState<ReadonlyMap<string, number[]>>(new Map())
  const learn = useCallback((key: string, steps: number[]) => setKnown((old) => (old.get(key) === steps ? old : new Map(old).set(key, steps))), [])
  const steps = useMemo(() => mergedSteps(runs.map(({ key }) => known.get(key) ?? [])), [known, runs.map(({ key }) => key).join()])
  const step = steps[placeOfStep(steps, at.when.value)]
  const onStep = (when: number | null) => update({ when })
  const open = openPicture()
  const openRun = open && runs.find(({ key }) => key === open.run)
  return (
    <>
      <header class="tensor-head">
        <h2 title={tag.tag}>{tag.tag}</h2>
        {tag.type === 'table' && <Search label="Find rows" placeholder="loss > 0.5 and label = cat, or any words" value={at.words.value} onChange={(words) => update({ words })} />}
      </header>
      <StepBar label="Step" steps={steps} step={at.when.value} onStep={onStep} />
      <div class={`media-runs ${tag.type === 'table' ? 'media-runs-texts' : ''}`}>
        {runs.map((run) => (
          <OfRun key={run.key} run={run} tag={tag.tag} series={tag.runs.get(run.key)!} kind={tag.type} step={step} learn={learn} />
        ))}
      </div>
      {open && openRun && step !== undefined && known.get(openRun.key) && <Full run={openRun} tag={tag.tag} series={tag.runs.get(openRun.key)!} index={open.index} steps={known.get(openRun.key)!} step={step} onStep={onStep} />}
    </>
  )
}

interface OfRunProps {
  run: Run
  tag: string
  series: string
  kind: TagType
  step: number | undefined
  /** Called with the steps of the run, for the slider. */
  learn: (key: string, steps: number[]) => void
}

function OfRun({ run, tag, series, kind, step, learn }: OfRunProps) {
  const found = useSteps(run.key, series)
  const steps = found.value?.steps
  useEffect(() => {
    if (steps) learn(run.key, steps)
  }, [steps])
  if (found.problem) return <p class="banner">{found.problem}</p>
  if (!steps || step === undefined) return null
  const Shown = kind === 'audio' ? SoundsOf : kind === 'table' ? SheetOf : Pictures
  return <Shown run={run} tag={tag} series={series} steps={steps} step={step} />
}
