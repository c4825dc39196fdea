// Tensors and histograms of a run: all at a glance, a table of any part at any step, and all steps as histograms.

import { useRef, useState } from 'preact/hooks'
import { byKey, labelOf, runs, shown, shownKeys } from '../../data/runs'
import { isAlike, isShownAsTensor, isTensor, namedTag, newestWithTensors, runTags, useTagsOf } from '../../data/tags'
import { useOneResource } from '../../data/runResource'
import { useSteps } from '../../data/tensors'
import type { Run, Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { Choice, Empty } from '../../ui/parts'
import { placeOfStep, StepBar } from '../../ui/StepBar'
import { pickerOpen, TagPicker } from '../../ui/TagPicker'
import { Icon } from '../../ui/Icon'
import { NoRuns } from '../charts/Charts'
import { otherStep, readAgainst } from './against'
import { BinsTable } from './BinsTable'
import { CurveView } from './CurveView'
import { HistogramView } from './HistogramView'
import { Overview } from './Overview'
import { TableView } from './TableView'

const VIEWS = [
  ['overview', 'Overview'],
  ['table', 'Table'],
  ['histograms', 'Histograms'],
  ['statistics', 'Statistics'],
] as const

export function TensorsPage() {
  const newest = useRef('')
  if (runs.value === null) return <Empty title="Looking for runs …" />
  if (runs.value.length === 0) return <NoRuns />
  // The newest run with tensors when the page was opened: one that begins meanwhile does not push it aside.
  if (!byKey.value.has(newest.current)) newest.current = newestWithTensors.value?.key ?? ''
  const run = byKey.value.get(at.from.value || newest.current) ?? null
  return <Tensors key={run?.key} run={run} />
}

function Tensors({ run }: { run: Run | null }) {
  const found = useOneResource(runTags, run?.key ?? '')
  const tags = [...(found.value?.tags.values() ?? [])].filter(isShownAsTensor)
  const tag = at.tensor.value ? namedTag(tags, at.tensor.value) : tags[0]
  return (
    <section class="tensors with-picker" aria-label="Tensors">
      <TagPicker
        label="Run and tensor"
        run={run}
        onRun={(from) => update({ from })}
        tags={tags}
        chosen={at.as.value === 'overview' ? '' : (tag?.name ?? '')}
        onTag={(tensor) => update({ tensor, versus: '', values: null, steps: null, cell: '', as: 'auto' })}
        search={at.find.value}
        onSearch={(find) => update({ find })}
        empty={!run ? '' : found.value ? 'This run has no tensors.' : 'Reading …'}
      />
      <div class="picked">
        <button type="button" class="button picker-open" onClick={() => (pickerOpen.value = true)}>
          <Icon name="list" /> {run ? labelOf(run.key) : 'Choose a run'}
        </button>
        {run && tags.length > 0 && at.as.value === 'overview' ? (
          <>
            <header class="tensor-head">
              <h2>All tensors</h2>
              <ViewChoice view="overview" />
            </header>
            <Overview key={run.key} run={run} />
          </>
        ) : run && tag && found.value ? (
          <Tensor key={`${run.key} ${tag.name}`} run={run} tag={tag} />
        ) : (
          <Nothing run={run} problem={found.problem} loading={!found.value} n={tags.length} />
        )}
      </div>
    </section>
  )
}

function Nothing({ run, problem, loading, n }: { run: Run | null; problem: string | null; loading: boolean; n: number }) {
  if (!run && at.from.value) return <Empty title="Unknown run">Choose a run on the left.</Empty>
  if (!run) return newestWithTensors.value === undefined ? <Empty title="Reading the runs …" /> : <NoneShown />
  if (problem) return <Empty title="The run cannot be read">{problem}</Empty>
  if (loading) return <Empty title="Reading the run …" />
  if (n > 0) {
    return (
      <Empty title={`No tensor ${at.tensor.value}`} mark={false}>
        <p>
          <b>{run.name}</b> has {n} others.
        </p>
        <button type="button" class="button" onClick={() => update({ tensor: '' })}>
          Show the first of them
        </button>
      </Empty>
    )
  }
  return (
    <Empty title="No tensors in this run">
      <p>Record some in the training, or choose another run:</p>
      <Recording />
    </Empty>
  )
}

/** How many of the newest other runs are looked into. */
const N_LOOKED_INTO = 50
const N_NAMED = 10

/** None of the visible runs has tensors: which others do. */
function NoneShown() {
  const others = (runs.value ?? []).filter(({ key, directory }) => directory && !shownKeys.value.has(key)).slice(0, N_LOOKED_INTO)
  const { values: tags, loading } = useTagsOf(others.map(({ key }) => key))
  const having = others.filter(({ key }) => tags.get(key)?.some(isShownAsTensor))
  if (!having.length && loading) return <Empty title="Reading the other runs …" />
  return (
    <Empty title={shown.value.length ? 'No tensors in the visible runs' : 'No run is visible'}>
      {having.length > 0 ? (
        <>
          <p>{having.length === 1 ? 'Another run has some:' : `${having.length} other runs have some:`}</p>
          <p class="empty-choice">
            {having.slice(0, N_NAMED).map(({ key }) => (
              <button key={key} type="button" class="button" onClick={() => update({ from: key })}>
                {labelOf(key)}
              </button>
            ))}
          </p>
        </>
      ) : (
        <>
          <p>Record some in the training:</p>
          <Recording />
        </>
      )}
    </Empty>
  )
}

function Recording() {
  return (
    <>
      <pre>{'run.log({"kernel": sg.Tensor(weights)}, step=step)\nrun.log({"activations": sg.Histogram(values)}, step=step)'}</pre>
      <p>
        Or record a live run's observables: on the page <b>Ask</b>, record a query such as <code>batch.params["dense"]</code>.
      </p>
    </>
  )
}

function ViewChoice({ view }: { view: (typeof VIEWS)[number][0] }) {
  return <Choice label="View" options={VIEWS} value={view} onChange={(as) => update({ as })} />
}

function Tensor({ run, tag }: { run: Run; tag: Tag }) {
  const found = useSteps(run.key, tag.name)
  const steps = found.value?.steps ?? []
  const step = steps[placeOfStep(steps, at.step.value)]
  const view = !isTensor(tag) ? 'table' : at.as.value === 'auto' ? (tag.type === 'histogram' ? 'histograms' : 'table') : at.as.value
  const against = tag.type === 'tensor' && isTensor(tag) ? readAgainst(at.minus.value) : null
  const otherRun = against?.run || run.key
  const theirs = useTagsOf(against ? [otherRun] : []).values.get(otherRun)
  // The same tag has another name in a run whose files may have several kinds under one.
  const versus = { run: otherRun, tag: at.versus.value || (theirs?.find((one) => isAlike(one, tag))?.name ?? tag.name) }
  const foundOther = useSteps(against ? versus.run : '', versus.tag)
  const [busy, setBusy] = useState(false)
  const near = against && step !== undefined && foundOther.fresh ? otherStep(against, step, foundOther.value!.steps) : null
  const how = { ...versus, measure: at.measure.value, rtol: at.rtol.value, atol: at.atol.value }
  // A step that was typed stands for the nearest one that there is.
  const when = typeof against?.when === 'number' ? near : (against?.when ?? null)
  const others = foundOther.problem || when === null ? null : { ...how, step: when }
  const other = others && near !== null ? { ...how, step: near } : null
  return (
    <>
      <header class="tensor-head">
        <h2 title={tag.tag}>{tag.tag}</h2>
        {tag.dtype && (
          <span class="tensor-dtype muted">
            {tag.dtype}
            {tag.stored_as && `, stored as ${tag.stored_as}`}
          </span>
        )}
        {isTensor(tag) && <ViewChoice view={view} />}
      </header>
      {found.problem ? (
        <p class="banner" role="alert">
          {found.problem}
        </p>
      ) : step === undefined ? (
        found.value && <Empty title="No step yet" mark={false} />
      ) : (
        <>
          <StepBar label="Step" steps={steps} walls={found.value?.wall_times} damaged={found.value?.damaged} step={at.step.value} busy={busy} onStep={(next) => update({ step: next })} />
          {against && foundOther.problem && (
            <p class="banner" role="alert">
              It cannot be compared: {foundOther.problem}
            </p>
          )}
          {view === 'statistics' ? (
            <CurveView run={run.key} tag={tag} />
          ) : view === 'histograms' ? (
            <HistogramView run={run.key} tag={tag} n_steps={steps.length} step={step} others={others} other={near} />
          ) : tag.type === 'histogram' ? (
            <BinsTable run={run.key} tag={tag.name} step={step} />
          ) : (
            <TableView run={run.key} tag={tag} step={step} other={other} others={others} onBusy={setBusy} />
          )}
        </>
      )}
    </>
  )
}
