// What a run tells about its program: its command, its git commit, the versions of Python and packages.

import type { ProgramFacts } from '../../data/types'

type Fact = [string, preact.ComponentChildren]

const N_DIGITS = 10

export function Program({ facts }: { facts: ProgramFacts }) {
  const told = factsOf(facts)
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

function factsOf({ command, folder, git, python, system, n_cpus }: ProgramFacts): Fact[] {
  const told: Fact[] = [
    ['Command', command && command.length > 0 && <code class="path">{command.map(quoted).join(' ')}</code>],
    ['Folder', folder && <code class="path">{folder}</code>],
    ['Commit', git?.commit && <Commit {...git} />],
    ['Python', python],
    ['System', system && `${system}${n_cpus ? `, ${n_cpus} cores` : ''}`],
  ]
  return told.filter(([, fact]) => fact)
}

function Commit({ commit, branch, dirty }: NonNullable<ProgramFacts['git']>) {
  return (
    <>
      <code title={commit}>{commit.slice(0, N_DIGITS)}</code>
      {branch && ` on ${branch}`}
      {dirty && ', with changes'}
    </>
  )
}

/** An argument as a shell reads it. */
const quoted = (argument: string): string => (/^[\w@%+=:,./[\]-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`)

const pairs = (entries: Record<string, string> | undefined): Fact[] => Object.entries(entries ?? {})
