// The card of a run in a notebook: the page's parts about one run, fed by the kernel.

import { signal } from '@preact/signals'
import { render } from 'preact'
import type { Acknowledgement, RunDetail } from '../data/types'
import { Commander } from '../run/commander'
import { Events, ratesOf } from '../run/Events'
import { History } from '../run/History'
import { Offered } from '../run/Offered'
import { Queries } from '../run/Queries'
import { RunButtons } from '../run/RunButtons'
import { StateDot, type ShownState } from '../run/StateDot'
import commandsCss from '../style/commands.css?inline'
import cardCss from '../style/card.css?inline'
import { boxIn } from '../views/box'
import { css } from '../views/css'
import { forgetOldTrees } from '../views/forget'
import { showInvisible } from '../views/visible'
import { count, duration, number, value } from '../views/format'
import { watchSurroundings } from '../views/surroundings'
import type { KernelLink, Shown } from './kernel'

/** What the kernel says about a run: the page's details, and what this client may do. */
interface CardInfo extends Omit<RunDetail, 'state'> {
  state: ShownState
  /** Why the run takes no commands from here; '' if it does. */
  off: string
  /** The query for each observable, by event and name. */
  queries: Record<string, Record<string, string>>
  /** How many observables each event has, with those that are not listed. */
  n_observables: Record<string, number>
}

const NO_RATES: ReadonlyMap<string, number> = new Map()
const GONE = 'The kernel is gone. This is what the run last reported.'

export function showCard(el: HTMLElement, link: KernelLink): Shown {
  forgetOldTrees()
  showInvisible()
  const host = el.appendChild(document.createElement('div'))
  const box = boxIn(host, `${css}\n${commandsCss}\n${cardCss}`, 'sightglass-card')
  const info = signal<CardInfo | null>(null)
  const rates = signal(NO_RATES)
  const alive = signal(true)
  const said = signal<{ kind: 'done' | 'error'; text: string } | null>(null)
  const commander = new Commander({
    send: (command) => link.request({ command }) as Promise<Acknowledgement>,
    history: () => info.value?.history ?? [],
    tell: (kind, text) => void (said.value = { kind, text }),
    refresh: () => undefined, // the kernel sends what a command changed
  })
  const paint = () => void (host.dataset.theme = surroundings.isDark() ? 'dark' : 'light')
  const surroundings = watchSurroundings(paint)
  paint()

  function Card() {
    const now = info.value
    if (!now) return <p class="card-wait muted">{alive.value ? 'Waiting for the kernel …' : 'The kernel is gone.'}</p>
    const state = alive.value ? now.state : 'kernel gone'
    return <RunCard info={now} state={state} off={alive.value ? now.off : GONE} rates={rates.value} commander={commander} said={said.value} />
  }
  render(<Card />, box)
  return {
    update({ info: next }) {
      const now = next as CardInfo
      rates.value = ratesOf(info.peek()?.description, now.description) ?? rates.peek()
      info.value = now
    },
    showAlive(now) {
      alive.value = now
    },
    end() {
      surroundings.close()
      render(null, box)
      host.remove()
    },
  }
}

interface RunCardProps {
  info: CardInfo
  state: ShownState
  off: string
  rates: ReadonlyMap<string, number>
  commander: Commander
  said: { kind: 'done' | 'error'; text: string } | null
}

function RunCard({ info, state, off, rates: latest, commander, said }: RunCardProps) {
  const { name, description, history, streams, live } = info
  const age_s = description ? description.wall_time - description.started : 0
  const takes = live && state !== 'kernel gone' && state !== 'lost'
  const rates = takes ? latest : NO_RATES
  const offers = live && description && Object.keys(description.controls).length + Object.keys(description.actions).length > 0
  return (
    <article class="run-card" aria-label={`Run ${name}`}>
      <header>
        <h2>{name}</h2>
        <StateDot state={state} word />
        <span class="muted">{factsOf(info, rates).join(' · ')}</span>
        {takes && <RunButtons name={name} state={state} off={off} commander={commander} />}
      </header>
      {state === 'kernel gone' ? <p class="banner banner-still">{GONE}</p> : info.problem && <p class={state === 'lost' ? 'banner' : 'banner banner-still'}>{info.problem}</p>}
      <div class={offers ? 'run-card-columns' : ''}>
        {description && <Events events={description.events} queries={info.queries} n_observables={info.n_observables} rates={rates} />}
        {offers && (
          <div>
            <Offered description={description} off={off} commander={commander} />
          </div>
        )}
      </div>
      {live ? <Queries streams={streams} age_s={age_s} /> : <Recorded info={info} />}
      {said && (
        <p class={said.kind === 'error' ? 'run-card-said field-problem' : 'run-card-said'} role="status">
          {said.text}
        </p>
      )}
      {history.length > 0 && (
        <details>
          <summary>Commands ({history.length})</summary>
          <History entries={history} />
        </details>
      )}
      <About info={info} />
    </article>
  )
}

function factsOf({ description, live }: CardInfo, rates: ReadonlyMap<string, number>): string[] {
  if (!description) return []
  const { events, wall_time, started, n_clients, n_pending_commands: n_pending } = description
  const [name, most] = Object.entries(events).sort(([, a], [, b]) => b.n_events - a.n_events)[0] ?? []
  const rate = rates.get(name ?? '')
  return [
    most?.n_events ? `${name} ${most.n_events.toLocaleString('en')}` : '',
    rate ? `${number(rate, 3)}/s` : '',
    wall_time > started ? duration(Math.floor(wall_time - started)) : '',
    n_clients > 1 ? `${n_clients} clients` : '',
    live && n_pending ? `${n_pending} ${n_pending === 1 ? 'command' : 'commands'} pending` : '',
  ].filter(Boolean)
}

function Recorded({ info }: { info: CardInfo }) {
  const streams = info.streams.filter(({ recorded }) => recorded)
  if (!streams.length) return null
  return (
    <div class="card">
      <h2>Recorded series</h2>
      <ul class="queries">
        {streams.map(({ stream, tag, query, n_records }) => (
          <li key={stream}>
            <code title={query}>{tag || query}</code>
            <span class="muted">{count(n_records)} records</span>
          </li>
        ))}
      </ul>
    </div>
  )
}

function About({ info: { id, host, description, directory, config } }: { info: CardInfo }) {
  const own = Object.entries(config)
  const where: [string, unknown][] = [['id', id], ['host', host], ['process', description?.pid || ''], ['directory', directory]]
  return (
    <details>
      <summary>{own.length ? 'Configuration and location' : 'Location'}</summary>
      <dl>
        {[...own, ...where.filter(([, one]) => one)].map(([name, one]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value(one)}</dd>
          </div>
        ))}
      </dl>
    </details>
  )
}
