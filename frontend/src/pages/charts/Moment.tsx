// All that a run recorded at a moment, beside the charts: a click on a line opens it, and arrow keys go from step to step.

import { useEffect, useRef } from 'preact/hooks'
import { get, messageOf, runPath } from '../../data/api'
import { useDetail } from '../../data/details'
import { useFetched } from '../../data/fetched'
import { useMedia } from '../../data/media'
import { styleOfRun } from '../../data/looks'
import { groupOf, knownRun, labelOf, shown } from '../../data/runs'
import { isOfMachine } from '../../data/tags'
import type { Moment as Reply, Run } from '../../data/types'
import { History } from '../../run/History'
import { at, update } from '../../state/state'
import { IconButton } from '../../ui/parts'
import { tell } from '../../ui/toasts'
import { dateTime, duration, number } from '../../views/format'
import { Swatch } from '../../views/Swatch'
import { here, momentOf } from './here'

type Told = ReturnType<typeof toldOf>
type Named = Told['numbers'][number]
type Other = Told['others'][number]

const placed = <T extends { step: number | string; wall_time: number | string }>(of: readonly T[]) => of.map((one) => ({ ...one, step: Number(one.step), wall_time: Number(one.wall_time) }))
const maybe = (one: number | string | null): number | null => (one === null ? null : Number(one))

/** The reply with its steps and times as numbers. */
const toldOf = ({ wall_time, step, before, after, numbers, texts, others, n_more }: Reply) => ({ wall: Number(wall_time), step: maybe(step), before: maybe(before), after: maybe(after), numbers: placed(numbers), texts: placed(texts), others: placed(others), n_more })

/** Around the moment, in seconds. */
const NEAR_S = 5

export function Moment() {
  const moment = momentOf(at.moment.value)
  return moment && <Shown key={moment.run} {...moment} />
}

function Shown({ run, wall }: { run: string; wall: number }) {
  const box = useRef<HTMLElement>(null)
  const { value: found, problem } = useFetched<Told>(JSON.stringify([run, wall]), async (abort) => toldOf(await get<Reply>(runPath(run, '/moment'), { at: wall, near_s: NEAR_S }, abort)))
  const { detail } = useDetail(run)
  const started = knownRun(run)?.started ?? null
  const go = (to: number | null | undefined) => typeof to === 'number' && update({ moment: `${to} ${run}` })
  const close = () => update({ moment: '' })
  useEffect(() => box.current?.focus({ preventScroll: true }), [])
  useEffect(() => {
    here.value = found && { run, wall: found.wall, step: found.step }
  }, [found])
  useEffect(() => () => void (here.value = null), [])
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target instanceof HTMLInputElement || event.altKey || event.ctrlKey || event.metaKey) return
    if (event.key === 'ArrowLeft') go(found?.before)
    else if (event.key === 'ArrowRight') go(found?.after)
    else if (event.key === 'Escape') close()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const others = beside(run)
  const commands = (detail?.history ?? []).filter((entry) => typeof entry.wall_time === 'number' && Math.abs(entry.wall_time - wall) <= NEAR_S)
  const [machine, own] = [found?.numbers.filter(({ tag }) => isOfMachine(tag)) ?? [], found?.numbers.filter(({ tag }) => !isOfMachine(tag)) ?? []]
  return (
    <aside class="details moment" aria-label={`${labelOf(run)} at a moment`} ref={box} tabIndex={-1} onKeyDown={onKeyDown}>
      <header class="details-head">
        <h2 title={labelOf(run)}>
          <Swatch style={styleOfRun(run)} />
          {others.length > 1 && found?.step != null ? (
            <select aria-label="Run at this step" title="The same step of another run" value={run} onChange={({ currentTarget }) => void turnTo(currentTarget.value, found.step!)}>
              {others.map(({ key }) => (
                <option key={key} value={key}>
                  {labelOf(key)}
                </option>
              ))}
            </select>
          ) : (
            labelOf(run)
          )}
        </h2>
        <IconButton icon="close" label="Close" onClick={close} />
      </header>
      <div class="details-body">
        <p class="moment-place">
          <Turn text="←" label="The step before (left arrow)" to={found?.before} onGo={go} />
          <span>
            <b>{found?.step === null || found?.step === undefined ? 'before the first step' : `step ${number(found.step, 12)}`}</b>
            <span class="muted"> {dateTime(wall)}{started !== null && `, after ${duration(Math.round(wall - started))}`}</span>
          </span>
          <Turn text="→" label="The next step (right arrow)" to={found?.after} onGo={go} />
        </p>
        {problem && <p class="banner">{problem}</p>}
        {!found && !problem && <p class="muted">Reading …</p>}
        {found && <Pictures run={run} others={found.others} />}
        {commands.length > 0 && (
          <>
            <h3>Commands</h3>
            <History entries={commands} />
          </>
        )}
        <Numbers title="Numbers" numbers={own} moment={found} />
        <Numbers title="Machine" numbers={machine} moment={found} />
        {found && found.texts.length > 0 && (
          <>
            <h3>Printed and noted around it</h3>
            <ol class="moment-texts">
              {found.texts.map(({ tag, wall_time, text }, i) => (
                <li key={i} title={`${tag}, ${dateTime(wall_time)}`} class={wall_time > wall ? 'moment-after' : undefined}>
                  {text}
                </li>
              ))}
            </ol>
          </>
        )}
        {found && found.n_more > 0 && <p class="muted">{found.n_more.toLocaleString('en')} more are left out.</p>}
      </div>
    </aside>
  )
}

/** Runs that are drawn, of a group its members, and the run itself. */
function beside(run: string): Run[] {
  const own = knownRun(run)
  const all = at.group.value && own ? shown.value.filter((one) => groupOf(one) === groupOf(own)) : shown.value
  return own && !all.includes(own) ? [own, ...all] : all
}

/** Show another run at a step; it was there at another time. */
async function turnTo(run: string, step: number): Promise<void> {
  try {
    const { wall_time } = await get<Reply>(runPath(run, '/moment'), { step })
    update({ moment: `${wall_time} ${run}` })
  } catch (error) {
    tell('error', messageOf(error))
  }
}

function Turn({ text, label, to, onGo }: { text: string; label: string; to: number | null | undefined; onGo: (to: number) => void }) {
  const there = typeof to === 'number'
  return (
    <button type="button" class="button" aria-label={label} title={label} disabled={!there} onClick={() => there && onGo(to)}>
      {text}
    </button>
  )
}

function Numbers({ title, numbers, moment }: { title: string; numbers: readonly Named[]; moment: Told | null }) {
  if (!moment || numbers.length === 0) return null
  return (
    <>
      <h3>{title}</h3>
      <dl class="facts facts-config">
        {numbers.map(({ tag, name, value, wall_time }) => (
          <div key={name}>
            <dt title={tag}>{tag}</dt>
            <dd title={String(value)}>
              {typeof value === 'number' ? number(value, 6) : value}
              <span class="muted">{ageOf(moment.wall - wall_time)}</span>
            </dd>
          </div>
        ))}
      </dl>
    </>
  )
}

/** How much older a value is, where that matters. */
const ageOf = (age_s: number): string => (age_s < 1 ? '' : ` ${duration(Math.round(age_s))} before`)

const MAX_PICTURES = 6

/** The last pictures by then, and where tensors, sounds and tables are. */
function Pictures({ run, others }: { run: string; others: readonly Other[] }) {
  if (others.length === 0) return null
  const pictures = others.filter(({ type }) => type === 'image' || type === 'figure').slice(0, MAX_PICTURES)
  const show = ({ name, type, step }: Other) =>
    type === 'tensor' || type === 'histogram' ? update({ from: run, tensor: name, step, as: 'auto', moment: '' }, { page: 'tensors' }) : update({ media: name, step, moment: '' }, { page: 'media' })
  return (
    <>
      <h3>The last by then</h3>
      {pictures.length > 0 && (
        <p class="moment-pictures">
          {pictures.map((one) => (
            <Picture key={one.name} run={run} one={one} onShow={() => show(one)} />
          ))}
        </p>
      )}
      <p class="details-buttons">
        {others
          .filter((one) => !pictures.includes(one))
          .map((one) => (
            <button key={one.name} type="button" class="button" title={`${one.type} at step ${number(one.step, 12)}`} onClick={() => show(one)}>
              {one.tag}
            </button>
          ))}
      </p>
    </>
  )
}

function Picture({ run, one, onShow }: { run: string; one: Other; onShow: () => void }) {
  const { src, problem } = useMedia(run, one.name, one.step, 0)
  return (
    <button type="button" class="moment-picture" title={`${one.tag} at step ${number(one.step, 12)}`} onClick={onShow}>
      {src && !problem ? <img src={src} alt={`${one.tag} at step ${number(one.step, 12)}`} /> : <span class="muted">{one.tag}</span>}
    </button>
  )
}
