// The charts: all scalars of the visible runs, by prefix; only visible charts exist.

import { computed } from '@preact/signals'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { filtered, runs, shown, showAll } from '../../data/runs'
import { scalarTags, tagProblems, tagsLoading, wantedCharts } from '../../data/tags'
import { at, toggled, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Dialog, Empty, IconButton } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { Panel } from './Panel'
import { OwnChart } from './OwnChart'
import { FOUND, givenSpecs, gridRows, ownSpecs, sectionsOf, specOf, tagSearch, type GridRow } from './sections'
import { Toolbar } from './Toolbar'

const GAP = 12
const HEAD_HEIGHT = 44
const SIZES = { s: { width: 250, height: 200 }, m: { width: 340, height: 270 }, l: { width: 600, height: 380 } }

const found = computed(() => {
  const { matches } = tagSearch(at.tags.value)
  return [...scalarTags.value.keys()].filter(matches)
})

export function Charts() {
  const [box, columns] = useColumns(SIZES[at.size.value].width)
  const tags = found.value
  const shut = at.shut.value
  const pinned = at.panel.value.filter((tag) => scalarTags.value.has(tag))
  const own = at.own.value
  const given = useMemo(() => givenSpecs(at.tags.value ? [] : wantedCharts.value), [at.tags.value, wantedCharts.value])
  const searching = at.tags.value !== ''
  const rows = useMemo(() => gridRows(ownSpecs(own), pinned, searching ? [{ name: FOUND, tags }] : sectionsOf(tags), new Set(shut), columns, given), [own, given, pinned.join('\n'), tags, searching, shut, columns])
  const height = SIZES[at.size.value].height
  const heights = useMemo(() => rows.map((row) => (row.kind === 'head' ? HEAD_HEIGHT : height + GAP)), [rows, height])
  const why = whyEmpty(tags.length + own.length)
  const focus = focused()
  return (
    <section class="charts" aria-label="Charts" ref={box}>
      <Toolbar n_tags={scalarTags.value.size} n_found={tags.length} />
      <Problems />
      {why ?? (
        <Rows
          class="charts-rows"
          label="Charts by tag"
          heights={heights}
          reach={350}
          keyOf={(i) => keyOf(rows[i]!)}
          row={(i) => <GridRowView row={rows[i]!} columns={columns} height={height} />}
        />
      )}
      <OwnChart />
      {focus && (
        <Dialog label={focus.title} wide onClose={() => update({ focus: '' })}>
          <div class="focus-close">
            <IconButton icon="close" label="Close" onClick={() => update({ focus: '' })} />
          </div>
          <Panel key={focus.id} spec={focus} large />
        </Dialog>
      )}
    </section>
  )
}

/** The chart that is enlarged. */
function focused() {
  const id = at.focus.value
  const several = [...ownSpecs(at.own.value), ...givenSpecs(wantedCharts.value).flatMap(({ charts }) => charts)]
  return several.find((spec) => spec.id === id) ?? (scalarTags.value.has(id) ? specOf(id) : null)
}

const keyOf = (row: GridRow): string => (row.kind === 'head' ? `head ${row.name}` : `${row.section} ${row.charts[0]!.id}`)

function GridRowView({ row, columns, height }: { row: GridRow; columns: number; height: number }) {
  if (row.kind === 'head') return <Head row={row} />
  return (
    <div class="charts-row" style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`, height: `${height}px` }}>
      {row.charts.map((spec) => (
        <Panel key={spec.id} spec={spec} />
      ))}
    </div>
  )
}

function Head({ row }: { row: GridRow & { kind: 'head' } }) {
  const open = !at.shut.value.includes(row.name)
  return (
    <h2 class="section-head">
      <button type="button" aria-expanded={open} onClick={() => update({ shut: toggled(at.shut.peek(), row.name) })}>
        <Icon name={row.pinned ? 'pin' : 'down'} size={14} />
        {row.name}
        <span class="muted">{row.n}</span>
      </button>
    </h2>
  )
}

function useColumns(width: number) {
  const box = useRef<HTMLElement>(null)
  const [room, setRoom] = useState(900)
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setRoom(entry!.contentRect.width))
    sizes.observe(box.current!)
    return () => sizes.disconnect()
  }, [])
  return [box, Math.max(1, Math.floor((room - 32 + GAP) / (width + GAP)))] as const
}

function Problems() {
  const problems = [...tagProblems.value].filter(([key]) => shown.value.some((run) => run.key === key))
  if (problems.length === 0) return null
  return (
    <p class="banner" role="alert">
      <Icon name="warning" /> {problems[0]![1]}
      {problems.length > 1 && ` (and ${problems.length - 1} more runs)`}
    </p>
  )
}

function whyEmpty(n_tags: number) {
  if (runs.value === null) return <Empty title="Looking for runs …" />
  if (runs.value.length === 0) return <NoRuns />
  if (filtered.value.length === 0) return <NoMatch />
  if (shown.value.length === 0) {
    return (
      <Empty title="No run is visible">
        <p>Click the colour of a run to show it.</p>
        <button type="button" class="button" onClick={showAll}>
          Show all {filtered.value.length}
        </button>
      </Empty>
    )
  }
  if (n_tags > 0) return null
  if (tagsLoading.value) return <Empty title="Reading the runs …" />
  if (at.tags.value && scalarTags.value.size > 0) {
    return (
      <Empty title="No tag matches">
        <p>
          None of {scalarTags.value.size} tags matches <code>{at.tags.value}</code>.
        </p>
        <button type="button" class="button" onClick={() => update({ tags: '' })}>
          Clear the search
        </button>
      </Empty>
    )
  }
  return (
    <Empty title="Nothing recorded yet">
      <p>
        These runs hold no scalars. Write <code>run.log({'{"loss": loss}'})</code> in the training, or query a live run on the page <b>Ask</b> and
        record the stream.
      </p>
    </Empty>
  )
}

export function NoRuns() {
  return (
    <Empty title="No runs yet">
      <p>Start a run, and it appears here:</p>
      <pre>{'import sightglass as sg\n\nwith sg.init("mnist", config={"lr": 1e-3}) as run:\n    for step in range(1000):\n        run.log({"loss": loss}, step=step)'}</pre>
      <p>
        Or try <code>sightglass demo</code>, or name a folder of recorded runs: <code>sightglass ui runs/</code>
      </p>
    </Empty>
  )
}

export function NoMatch() {
  if (!at.filter.value) {
    return (
      <Empty title="All runs are put away" mark={false}>
        <p>They are in the archive or in the trash. The page Runs lists them.</p>
      </Empty>
    )
  }
  return (
    <Empty title="No run matches" mark={false}>
      <p>
        None of {runs.value?.length} runs matches <code>{at.filter.value}</code>.
      </p>
      <button type="button" class="button" onClick={() => update({ filter: '' })}>
        Clear the filter
      </button>
    </Empty>
  )
}
