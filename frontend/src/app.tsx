// The frame around the pages: header, list of runs, details, notices.

import { allRuns, outOfDate, projects, runs, setProject, socket } from './data/runs'
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { unanswered } from './data/api'
import { file } from './data/file'
import { locked, openWith, session } from './data/session'
import { AskBar } from './pages/ask/AskBar'
import { Charts } from './pages/charts/Charts'
import { copyLink } from './pages/copied'
import { MediaPage } from './pages/media/MediaPage'
import { Bell } from './pages/runs/Bell'
import { Details } from './pages/runs/Details'
import { RunList, sidebarOpen } from './pages/runs/RunList'
import { RunTable } from './pages/runs/RunTable'
import { shortcuts } from './shortcuts'
import { at, hrefOf, page, PAGES, update, type Page } from './state/state'
import { nextTheme, theme } from './state/theme'
import { later } from './ui/later'
import { Empty, Glass, IconButton } from './ui/parts'
import { SavedViews, viewsOpen } from './ui/SavedViews'
import { printPage } from './ui/printPage'
import { helpOpen, HelpSheet } from './ui/shortcuts'
import { dateTime } from './views/format'
import { printing } from './views/printing'

const TITLES: Record<Page, string> = { charts: 'Charts', tensors: 'Tensors', media: 'Media', runs: 'Runs', control: 'Control', run: 'Run' }

/** The pages that are about the runs that are drawn. */
const LISTING: readonly Page[] = ['charts', 'media']

export function App() {
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main')?.focus())}>
        Skip to the content
      </a>
      <Header />
      {file && <FileNote />}
      {printing.value && <PaperHead />}
      {!file && !locked.value && <AskBar />}
      {locked.value ? <Locked /> : <Body />}
      {viewsOpen.value && <SavedViews />}
      {helpOpen.value && <HelpSheet shortcuts={shortcuts} />}
    </>
  )
}

function Header() {
  return (
    <header class="top">
      {LISTING.includes(page.value) && !locked.value && <IconButton icon="list" label="List of runs (b)" pressed={sidebarOpen.value} onClick={() => (sidebarOpen.value = !sidebarOpen.value)} />}
      <span class="brand">
        <Glass size={22} />
        <span>sightglass</span>
      </span>
      <Projects />
      <nav aria-label="Pages">
        {PAGES.filter((one) => one !== 'run' && (!file || file.pages.includes(one))).map((one) => (
          <a key={one} href={hrefOf(one)} aria-current={one === page.value ? 'page' : undefined} onClick={(event) => goTo(event, one)}>
            {TITLES[one]}
          </a>
        ))}
      </nav>
      <span class="top-end">
        {file ? (
          <IconButton icon="print" label="Print (p)" onClick={() => void printPage()} />
        ) : (
          <>
            <Connection />
            {!locked.value && <Bell />}
            {!locked.value && <IconButton icon="bookmark" label="Saved views, files and printing (v)" onClick={() => (viewsOpen.value = true)} />}
            <IconButton icon="link" label="Copy a link to what you see (the token stays out of it)" onClick={() => void copyLink()} />
          </>
        )}
        <IconButton icon={theme.value === 'system' ? 'system' : theme.value === 'dark' ? 'moon' : 'sun'} label={`Theme: ${theme.value}`} onClick={nextTheme} />
        <IconButton icon="help" label="Keys and gestures (?)" onClick={() => (helpOpen.value = true)} />
      </span>
    </header>
  )
}

/** The switch between projects, where there are several. */
function Projects() {
  if (projects.value.length < 2 && !at.project.value) return null
  return (
    <select class="project" aria-label="Project" title="The runs of one project, or of all" value={at.project.value} onChange={({ currentTarget }) => setProject(currentTarget.value)}>
      <option value="">All projects</option>
      {projects.value.map((project) => (
        <option key={project} value={project}>
          {project}
        </option>
      ))}
    </select>
  )
}

function goTo(event: MouseEvent, target: Page): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return
  event.preventDefault()
  update({}, { page: target })
}

/** Where a page that was saved as a file comes from, and what it lacks. */
function FileNote() {
  const { made, folders, version, n_runs, n_runs_left_out, n_series, n_thinned, media_left_out, n_tables_cut, pages } = file!
  const parts = [
    `Saved ${dateTime(made)} from ${folders.join(', ')} by sightglass ${version}`,
    `${n_runs} ${n_runs === 1 ? 'run' : 'runs'}${n_runs_left_out ? `, ${n_runs_left_out} more left out` : ''}`,
    `${n_series} series${n_thinned ? `, ${n_thinned} of them thinned, extremes kept` : ''}`,
    leftOut(media_left_out),
    n_tables_cut ? `${counted(n_tables_cut, 'table')} cut to the first rows` : '',
    `without ${pages.includes('media') ? '' : 'media, '}tensors, queries and commands`,
  ]
  return <footer class="file-note">{parts.filter(Boolean).join(' · ')}</footer>
}

const KINDS: Record<string, string> = { image: 'image', figure: 'figure', audio: 'sound', table: 'table', text: 'series of texts' }
const counted = (n: number, what: string): string => `${n} ${what}${n > 1 && what !== KINDS.text ? 's' : ''}`

/** How many records of each kind had no room in the file. */
function leftOut(counts: Record<string, number>): string {
  const parts = Object.entries(counts).map(([kind, n]) => counted(n, KINDS[kind] ?? kind))
  return parts.length ? `${parts.join(', ')} left out` : ''
}

/** What stands above the page on paper. */
function PaperHead() {
  const says = [TITLES[page.value], at.project.value, at.filter.value, at.tags.value].filter(Boolean).join(' · ')
  return (
    <p class="paper-head">
      <span>sightglass · {says}</span>
      <span>{dateTime(Date.now() / 1000)}</span>
    </p>
  )
}

function Connection() {
  const { kind } = socket.link.value
  const { role, name } = session.value ?? {}
  const away = unanswered.value > 0 || kind === 'waiting' || (kind === 'dialing' && socket.wasOpen)
  const word = locked.value ? 'locked out' : away ? 'reconnecting' : kind === 'open' ? 'connected' : 'connecting'
  return (
    <>
      {name && (
        <span class="chip chip-still" title="You opened your personal link: your commands are signed with this name">
          <bdi>{name}</bdi>
        </span>
      )}
      {role === 'viewer' && (
        <span class="chip chip-still" title="You opened the read-only link: you can query runs but not send commands">
          viewer
        </span>
      )}
      {outOfDate.value && (
        <span class="connection connection-away" role="status" title={outOfDate.value}>
          <span class="connection-dot" aria-hidden="true" />
          <span>{outOfDate.value.startsWith('The runs of the hub') ? 'hub away' : 'list incomplete'}</span>
        </span>
      )}
      <span class={`connection connection-${away || locked.value ? 'away' : kind}`} role="status" title={CONNECTION[word]}>
        <span class="connection-dot" aria-hidden="true" />
        <span class={away ? '' : 'unseen'}>{word}</span>
      </span>
    </>
  )
}

const CONNECTION = {
  'locked out': 'The link is no longer valid',
  reconnecting: 'The server does not answer; trying again',
  connected: 'Connected to the server',
  connecting: 'Looking for the server',
} as const

function Body() {
  const listed = LISTING.includes(page.value) && (runs.value?.length ?? 0) > 0
  return (
    <div class={`body ${listed && sidebarOpen.value ? 'has-list' : ''}`}>
      {listed && sidebarOpen.value && (
        <>
          <nav class="sidebar" aria-label="Runs">
            <RunList />
          </nav>
          <button type="button" class="scrim" aria-label="Close the list of runs" onClick={() => (sidebarOpen.value = false)} />
        </>
      )}
      <main id="main" tabIndex={-1}>
        <h1 class="unseen">{TITLES[page.value]}</h1>
        {unanswered.value > 0 && <p class="banner banner-late">The sightglass server does not answer. Is it still running? The page tries again by itself.</p>}
        {runs.value?.length === 0 && allRuns.value?.length ? <NoProject /> : <Shown page={page.value} />}
      </main>
      {page.value === 'charts' && at.moment.value ? <Moment /> : (LISTING.includes(page.value) || page.value === 'runs') && at.run.value && <Details />}
    </div>
  )
}

const Moment = later('this moment', () => import('./pages/charts/Moment').then((found) => found.Moment))

const SHOWN: Record<Page, () => JSX.Element | null> = {
  charts: Charts,
  media: MediaPage,
  runs: RunTable,
  tensors: later(TITLES.tensors, () => import('./pages/tensors/TensorsPage').then((found) => found.TensorsPage)),
  control: later(TITLES.control, () => import('./pages/control/ControlPage').then((found) => found.ControlPage)),
  run: later(TITLES.run, () => import('./pages/run/RunPage').then((found) => found.RunPage)),
}

function Shown({ page }: { page: Page }) {
  if (file && !file.pages.includes(page)) return <Empty title="This page is not in the file" mark={false} />
  const One = SHOWN[page]
  return <One />
}

function NoProject() {
  return (
    <Empty title="No runs in this project" mark={false}>
      <p>
        No run is in <code>{at.project.value}</code> now.
      </p>
      <button type="button" class="button" onClick={() => setProject('')}>
        Show all projects
      </button>
    </Empty>
  )
}

function Locked() {
  return (
    <main id="main" tabIndex={-1}>
      <Empty title={locked.value === 'missing' ? 'This page needs its link' : 'This link is no longer valid'}>
        <p>
          {locked.value === 'missing'
            ? 'Open the link ending in #token=… that sightglass ui printed in its terminal.'
            : 'The server was restarted with new links, which its terminal shows, or your personal link was revoked.'}
        </p>
        <p>A tab keeps its token to itself, so each new tab needs the link. Paste yours here to see what this address shows:</p>
        <LinkBox />
      </Empty>
    </main>
  )
}

/** Takes a link whose token opens this address. */
function LinkBox() {
  const [problem, setProblem] = useState('')
  return (
    <form
      class="link-box"
      onSubmit={(event) => {
        event.preventDefault()
        const link = new FormData(event.currentTarget).get('link') as string
        setProblem(openWith(link.trim()) ? '' : 'Expected a link with #token=…')
      }}
    >
      {/* No password, which browsers offer to keep. */}
      <input name="link" aria-label="Your link" placeholder="http…#token=…" autocomplete="off" aria-invalid={Boolean(problem)} />
      <button type="submit" class="button button-main">
        Open
      </button>
      {problem && (
        <p class="field-problem" role="alert">
          {problem}
        </p>
      )}
    </form>
  )
}
