// What a run tells about its program: its command, its git commit and what differs from it, the versions of Python and
// packages, what it printed last.

import { useEffect, useState } from 'preact/hooks'
import { get, messageOf, runPath } from '../../data/api'
import { session } from '../../data/session'
import type { ProgramFacts, Run, RunTexts } from '../../data/types'
import { Dialog } from '../../ui/parts'

type Fact = [string, preact.ComponentChildren]

const N_DIGITS = 10

export function Program({ run, facts }: { run: Run; facts: ProgramFacts }) {
  const told = factsOf(run, facts)
  const more = [...pairs(facts.packages), ...pairs(facts.environment)]
  if (told.length + more.length === 0) return null
  return (
    <>
      <h3>Program</h3>
      <Facts facts={told} />
      {more.length > 0 && (
        <details>
          <summary>Versions{facts.environment && ' and environment'}</summary>
          <Facts facts={more} />
        </details>
      )}
    </>
  )
}

export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, fact]) => (
        <div key={name}>
          <dt title={name}>{name}</dt>
          <dd>{fact}</dd>
        </div>
      ))}
    </dl>
  )
}

function factsOf(run: Run, { command, folder, git, python, system, n_cpus }: ProgramFacts): Fact[] {
  const told: Fact[] = [
    ['Command', command && command.length > 0 && <code class="path">{command.map(quoted).join(' ')}</code>],
    ['Folder', folder && <code class="path">{folder}</code>],
    ['Commit', git?.commit && <Commit run={run} {...git} />],
    ['Python', python],
    ['System', system && `${system}${n_cpus ? `, ${n_cpus} cores` : ''}`],
  ]
  return told.filter(([, fact]) => fact)
}

function Commit({ run, commit, branch, dirty }: NonNullable<ProgramFacts['git']> & { run: Run }) {
  return (
    <>
      <code title={commit}>{commit.slice(0, N_DIGITS)}</code>
      {branch && ` on ${branch}`}
      {dirty && (
        <>
          ,{' '}
          <TextButton run={run} what="changes">
            with changes
          </TextButton>
        </>
      )}
    </>
  )
}

/** An argument as a shell reads it. */
const quoted = (argument: string): string => (/^[\w@%+=:,./[\]-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`)

const pairs = (entries: Record<string, string> | undefined): Fact[] => Object.entries(entries ?? {})

// The texts beside the records of a run.

const WHAT = {
  changes: { head: 'What differs from the commit of', none: 'No differences were written: sg.Facts(diff=False), or git could not say.' },
  printed: { head: 'The last lines of', none: 'No lines were written.' },
} as const

export const NO_CODE = 'You opened the read-only link. Code and printed lines need the controller link'

interface Props {
  run: Run
  what: keyof typeof WHAT
  children: preact.ComponentChildren
  class?: string
}

export function TextButton({ run, what, children, class: kind = 'text-button' }: Props) {
  const [open, setOpen] = useState(false)
  const off = session.value?.role === 'viewer' ? NO_CODE : ''
  return (
    <>
      <button type="button" class={kind} disabled={Boolean(off)} title={off || `${WHAT[what].head} ${run.name}`} onClick={() => setOpen(true)}>
        {children}
      </button>
      {open && <TextDialog run={run} what={what} onClose={() => setOpen(false)} />}
    </>
  )
}

function TextDialog({ run, what, onClose }: Pick<Props, 'run' | 'what'> & { onClose: () => void }) {
  const [found, setFound] = useState<RunTexts | null>(null)
  const [problem, setProblem] = useState('')
  const { head, none } = WHAT[what]
  useEffect(() => {
    get<RunTexts>(runPath(run.key, '/beside')).then(setFound, (error: unknown) => setProblem(messageOf(error)))
  }, [run.key])
  return (
    <Dialog label={`${head} ${run.name}`} onClose={onClose}>
      <h2>
        {head} {run.name}
      </h2>
      {problem && <p class="field-problem">{problem}</p>}
      {found ? found[what] ? <pre class="stacks">{what === 'changes' ? lines(found.changes) : found.printed}</pre> : <p class="muted">{none}</p> : !problem && <p class="muted">Loading …</p>}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  )
}

/** The lines of a diff, coloured by what happened to them. */
function lines(diff: string) {
  return diff.split('\n').map((line, i) => (
    <span key={i} class={line.startsWith('+') ? 'diff-more' : line.startsWith('-') ? 'diff-less' : line.startsWith('@@') ? 'muted' : undefined}>
      {line}
      {'\n'}
    </span>
  ))
}
