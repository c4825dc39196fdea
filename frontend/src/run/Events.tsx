// What a run offers: its events and their observables, with the latest values that the run described.

import { useRef, useState } from 'preact/hooks'
import { copyText } from '../views/clipboard'
import type { Description, EventInfo, Observable } from '../data/types'
import { number } from '../views/format'

const MAX_FIELDS = 6
const COPIED_MS = 2_000

/** How often each event happened a second between two descriptions; null if no time passed. */
export function ratesOf(before: Description | null | undefined, now: Description | null): ReadonlyMap<string, number> | null {
  if (!before || !now || now.wall_time <= before.wall_time) return null
  const took_s = now.wall_time - before.wall_time
  return new Map(Object.entries(now.events).map(([name, { n_events }]) => [name, (n_events - (before.events[name]?.n_events ?? n_events)) / took_s]))
}

/** The newest step of which an event shows values; null if none has one. */
export function stepOf({ observables }: EventInfo): number | null {
  const steps = Object.values(observables).flatMap(({ example, step }) => (example && typeof step === 'number' ? [step] : []))
  return steps.length ? Math.max(...steps) : null
}

interface EventsProps {
  events: Record<string, EventInfo>
  /** The query for each observable, by event and name. */
  queries: Record<string, Record<string, string>>
  n_observables: Record<string, number>
  rates: ReadonlyMap<string, number>
}

export function Events({ events, queries, n_observables, rates }: EventsProps) {
  const all = Object.entries(events)
  return (
    <div class="card events">
      <h2>Events</h2>
      {all.length === 0 && <p class="muted">No events yet.</p>}
      {all.map(([name, event]) => {
        const step = stepOf(event)
        const n_more = (n_observables[name] ?? 0) - Object.keys(event.observables).length
        const rate = rates.get(name)
        return (
          <section key={name} aria-label={`Event ${name}`}>
            <h3>
              {name}
              <span class="muted">{[event.n_events.toLocaleString('en'), rate && `${number(rate, 3)}/s`, event.snapshot && 'snapshot'].filter(Boolean).join(' · ')}</span>
              {step !== null && <span class="muted event-step">values of step {number(step, 10)}</span>}
            </h3>
            {event.note && <p class="muted">{event.note}</p>}
            <ul>
              {Object.entries(event.observables).map(([key, one]) => (
                <li key={key}>
                  <Offer name={key} observable={one} query={queries[name]?.[key] ?? ''} step={step} />
                </li>
              ))}
            </ul>
            {n_more > 0 && <p class="muted">and {n_more.toLocaleString('en')} more</p>}
          </section>
        )
      })}
    </div>
  )
}

interface OfferProps {
  name: string
  observable: Observable
  query: string
  /** The step that the other values of the event are of. */
  step: number | null
}

/** One observable; a click copies the query for it. */
function Offer({ name, observable, query, step }: OfferProps) {
  const { type, example = '', fields } = observable
  const [said, setSaid] = useState('')
  const timer = useRef(0)
  const paths = Object.entries(fields).map(([path, kind]) => `${path}: ${kind}`)
  const inside = paths.slice(0, MAX_FIELDS).join(', ') + (paths.length > MAX_FIELDS ? ', …' : '')
  const code = `run.stream(${JSON.stringify(query)})`
  const copy = () => {
    const say = (text: string) => {
      clearTimeout(timer.current)
      setSaid(text)
      timer.current = window.setTimeout(() => setSaid(''), COPIED_MS)
    }
    // Without a clipboard the text is shown, to be copied by hand.
    void copyText(code).then(() => say('copied'), () => say(code))
  }
  const older = observable.step !== step && typeof observable.step === 'number' ? ` at step ${number(observable.step, 10)}` : ''
  return (
    <button type="button" class="offer" title={[code, ...paths].join('\n')} disabled={!query} onClick={copy}>
      <code>{name}</code>
      <span class="muted offer-type">
        {type}
        {inside && ` · ${inside}`}
      </span>
      {said ? (
        <span class="offer-said">{said}</span>
      ) : (
        example && (
          <span class="offer-value">
            {shownValue(observable)}
            <span class="muted">{older}</span>
          </span>
        )
      )}
    </button>
  )
}

function shownValue({ type, example = '' }: Observable): string {
  const value = Number(example)
  return type.startsWith('float') && Number.isFinite(value) ? number(value, 5) : example
}
