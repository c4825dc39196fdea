// The charts: all scalars of the visible runs, by prefix; only visible charts exist.

import { computed } from '@preact/signals'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { file } from '../../data/file'
import { facets, looksKey } from '../../data/looks'
import { filtered, runs, shown, showAll } from '../../data/runs'
import { runsWith, runTags, scalarTags, tagsLoading, wantedCharts } from '../../data/tags'
import { at, toggled, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Dialog, Empty, IconButton } from '../../ui/parts'
import { later } from '../../ui/later'
import { Rows } from '../../ui/Rows'
import { Swatch } from '../../views/Swatch'
import { copy } from '../copied'
import { Panel } from './Panel'
import { OwnChart } from './OwnChart'
import { cardOf } from './cards'
import { drawn } from './drawn'
import { drag, inSight, movesBy, moveSection, said } from './order'
import { ordered } from './ordered'
import { divided, focusOf, FOUND, givenSpecs, gridRows, ownSpecs, sectionsOf, shownSections, specOf, tagSearch, widest, type GridRow, type Head, type Shown, type Spec } from './sections'
import { wantedOf } from './wanted'
import { Toolbar } from './Toolbar'

const Asked = later('what was asked', () => import('../ask/AskCards').then((found) => found.AskCards))

const GAP = 12
const HEAD_HEIGHT = 44
const SIZES = { s: { width: 250, height: 200 }, m: { width: 340, height: 270 }, l: { width: 600, height: 380 } }

const found = computed(() => {
  const { matches } = tagSearch(at.tags.value)
  return [...scalarTags.value.keys()].filter(matches)
})

export function Charts() {
  const [box, columnsOf] = useColumns()
  const most = columnsFor(columnsOf, facets.value.names.length)
  const tags = found.value
  const pinned = at.panel.value.filter((tag) => scalarTags.value.has(tag))
  const searching = at.tags.value !== ''
  const given = useMemo(() => givenSpecs(searching ? [] : wantedCharts.value), [searching, wantedCharts.value])
  const { rows, columns } = useMemo(() => {
    const sections = searching ? [{ name: FOUND, tags }] : ordered(sectionsOf(tags), at.sections.value, ({ name }) => name)
    const all = shownSections(ownSpecs(at.own.value), pinned, sections, new Set(at.shut.value), at.order.value, given)
    inSight.charts = new Map(all.map(({ name, charts }) => [name, charts.map(({ id }) => id)]))
    inSight.sections = sections.map(({ name }) => name)
    return grid(divided(all, facets.value.names, hasLine), most)
  }, [facets.value, drawn.value, at.own.value, given, pinned.join('\n'), tags, searching, at.shut.value, at.order.value, at.sections.value, at.cards.value, most])
  const height = SIZES[at.size.value].height
  const heights = useMemo(() => rows.map((row) => (row.kind === 'heads' ? HEAD_HEIGHT : row.tall * (height + GAP))), [rows, height])
  const why = whyEmpty(tags.length + at.own.value.length)
  const focus = focused()
  const asked = at.ask.value.length > 0 && !file && (
    <div class="charts-asked">
      <Asked />
    </div>
  )
  return (
    <section class="charts" aria-label="Charts" ref={box}>
      <Toolbar n_tags={scalarTags.value.size} n_found={tags.length} />
      <LooksKey />
      <Problems />
      {why ? (
        <div class="charts-alone">
          {asked}
          {why}
        </div>
      ) : (
        <Rows
          class="charts-rows"
          header={asked}
          label="Charts by tag"
          heights={heights}
          reach={350}
          keyOf={(i) => keyOf(rows[i]!)}
          row={(i) => <GridRowView row={rows[i]!} columns={columns} height={height} />}
        />
      )}
      <p class="unseen" role="status">
        {said.value}
      </p>
      <OwnChart />
      {focus && (
        <Dialog label={focus.title} wide onClose={() => update({ focus: '' })}>
          <div class="focus-close">
            <IconButton icon="close" label="Close" onClick={() => update({ focus: '' })} />
          </div>
          <Panel key={focusOf(focus)} spec={focus} large />
        </Dialog>
      )}
    </section>
  )
}

/** What colours and dashes mean, and which parts of the charts are left out. */
function LooksKey() {
  const { n_more } = facets.value
  if (!looksKey.value.length && !n_more) return null
  return (
    <ul class="looks-key" aria-label="What colours and dashes mean">
      {looksKey.value.map(({ column, values, n_more }) => (
        <li key={column}>
          <span>{column}</span>
          {values.map(({ text, style }) => (
            <span key={text} class="looks-value">
              <Swatch style={style} /> {text}
            </span>
          ))}
          {n_more > 0 && <span>and {n_more} more</span>}
        </li>
      ))}
      {n_more > 0 && <li>{`${n_more} more values of ${at.facet.value} are not drawn: filter the runs, or choose another key`}</li>}
    </ul>
  )
}

/** The grid; where few charts are, they grow by half at most, so that the page is filled and the sizes still differ. */
function grid(shown: Shown[], most: number): { rows: GridRow[]; columns: number } {
  const sizeOf = (id: string) => cardOf(at.cards.value, id)
  const rows = gridRows(shown, most, sizeOf)
  const columns = Math.max(Math.ceil((2 * most) / 3), widest(rows))
  return { rows: columns === most ? rows : gridRows(shown, columns, sizeOf), columns }
}

/** Whether a chart of these tags has a line in a facet. */
const hasLine = (tags: readonly string[], facet: string): boolean => wantedOf(tags, drawn.value, runsWith).some((one) => one.facet === facet)

/** As many columns as have room; in facets, so many that a row holds whole charts, of small ones if it must. */
function columnsFor(columnsOf: (width: number) => number, n_facets: number): number {
  const most = columnsOf(SIZES[at.size.value].width)
  if (n_facets <= 1) return most
  if (n_facets > most) return n_facets <= columnsOf(SIZES.s.width) ? n_facets : most
  return most - (most % n_facets)
}

/** The chart that is enlarged. */
function focused() {
  const [id = '', facet] = at.focus.value.split('\n')
  // A link may name a facet by which charts are not divided any more.
  const facetted = (spec: Spec) => (facet && facets.value.names.includes(facet) ? { ...spec, facet } : spec)
  const several = [...ownSpecs(at.own.value), ...givenSpecs(wantedCharts.value).flatMap(({ charts }) => charts)]
  const spec = several.find((one) => one.id === id) ?? (scalarTags.value.has(id) ? specOf(id) : null)
  return spec && facetted(spec)
}

const keyOf = (row: GridRow): string => (row.kind === 'heads' ? `head ${row.heads[0]!.name}` : `${row.cells[0]!.section} ${focusOf(row.cells[0]!.spec)}`)

function GridRowView({ row, columns, height }: { row: GridRow; columns: number; height: number }) {
  const gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`
  if (row.kind === 'heads') {
    return (
      <div class="charts-heads" style={{ gridTemplateColumns }}>
        {row.heads.map((head) => (
          <HeadView key={head.name} head={head} />
        ))}
      </div>
    )
  }
  return (
    <div class="charts-row" style={{ gridTemplateColumns, gridTemplateRows: `repeat(${row.tall}, ${height}px)` }}>
      {row.cells.map(({ spec, section, column, row: top, wide, tall }) => (
        <Panel key={`${section} ${focusOf(spec)}`} spec={spec} section={section} place={`${top + 1} / ${column + 1} / span ${tall} / span ${wide}`} />
      ))}
    </div>
  )
}

function HeadView({ head: { name, n, pinned, column, span } }: { head: Head }) {
  const open = !at.shut.value.includes(name)
  const fixed = pinned || name === FOUND
  return (
    <h2 class="section-head" data-section={name} style={{ gridColumn: `${column + 1} / span ${span}` }} onPointerDown={fixed ? undefined : drag} onKeyDown={fixed ? undefined : (event) => movesBy(event, (by) => moveSection(name, by))}>
      <button type="button" class="section-name" aria-expanded={open} title={fixed ? undefined : 'Drag to move this section, or Alt with an arrow key'} onClick={() => update({ shut: toggled(at.shut.peek(), name) })}>
        <Icon name={pinned ? 'pin' : 'down'} size={14} />
        <span class="section-title">{name}</span>
        <span class="muted">{n}</span>
      </button>
    </h2>
  )
}

function useColumns() {
  const box = useRef<HTMLElement>(null)
  const [room, setRoom] = useState(900)
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setRoom(entry!.contentRect.width))
    sizes.observe(box.current!)
    return () => sizes.disconnect()
  }, [])
  const columnsOf = (width: number) => Math.max(1, Math.floor((room - 32 + GAP) / (width + GAP)))
  return [box, columnsOf] as const
}

function Problems() {
  const problems = [...runTags.problems.value].filter(([key]) => shown.value.some((run) => run.key === key))
  if (problems.length === 0) return null
  return (
    <p class="banner" role="alert">
      <Icon name="warning" /> {problems[0]![1]}
      {problems.length > 1 && ` (and ${problems.length - 1} more ${problems.length === 2 ? 'run' : 'runs'})`}
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
        These runs hold no scalars. Write <code>run.log({'{"loss": loss}'})</code> in the training, or ask a live run above, and pin the
        answer.
      </p>
    </Empty>
  )
}

/** A first run: it can be pasted as it is, and is asked while it goes on. */
const FIRST = `import sightglass as sg, time
run = sg.init("first", config={"lr": 0.1})
for step in range(1000):
    run.log({"loss": 1 / (1 + step)}, step=step)
    time.sleep(0.1)`

export function NoRuns() {
  return (
    <Empty title="No runs yet">
      <p>This page listens: run this on the same machine, and it appears here by itself, ready to be asked.</p>
      <pre>{FIRST}</pre>
      <button type="button" class="button" onClick={() => void copy(FIRST, 'Program copied', 'The browser refused to copy: select the lines instead')}>
        Copy the program
      </button>
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
