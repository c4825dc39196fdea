// The token: read from the link's fragment once, stored for this tab, and removed from the address bar.
// It is a secret: it never goes into a query string, a cookie or localStorage.

import { signal } from '@preact/signals'
import type { Session } from './types'

const KEY = 'sightglass-token'

/** Take `token=…` out of a fragment: the token, if there is one, and what is left. */
export function takeToken(fragment: string): { token: string | null; rest: string } {
  const body = fragment.replace(/^#/, '')
  const found = /(^|[?&])token=([^&]*)/.exec(body)
  if (!found) return { token: null, rest: body }
  const rest = body.slice(0, found.index) + (found[1] === '?' ? '?' : '') + body.slice(found.index + found[0].length)
  const clean = rest.replace('?&', '?').replace(/^&/, '').replace(/\?$/, '')
  return { token: decodeURIComponent(found[2]!), rest: clean }
}

/** Why the page cannot send requests: it has no token, or the server does not accept it. */
export const locked = signal<'' | 'missing' | 'refused'>('')
export const session = signal<Session | null>(null)

export function readToken(): string {
  const { token, rest } = takeToken(location.hash)
  if (token) {
    sessionStorage.setItem(KEY, token)
    history.replaceState(null, '', rest ? `#${rest}` : location.pathname + location.search)
  }
  return currentToken()
}

/** Open this address with the token of a link: a token that is in the fragment is taken out of it. Returns whether the link has one. */
export function openWith(link: string): boolean {
  const { token } = takeToken(link.slice(link.indexOf('#')))
  if (!token) return false
  const { hash } = location
  location.hash = `${hash || '#'}${/^#?$/.test(hash) ? '' : hash.includes('?') ? '&' : '?'}token=${encodeURIComponent(token)}`
  return true
}

/** Open links to this page in new tabs by script: these get a copy of the storage of this tab, those of the browser do not. */
export function followNewTabs(): void {
  const open = (event: MouseEvent) => {
    const link = (event.target as Element | null)?.closest?.('a[href^="#"]') as HTMLAnchorElement | null
    if (!link || event.defaultPrevented || !(event.button === 1 || (event.button === 0 && (event.ctrlKey || event.metaKey)))) return
    event.preventDefault()
    window.open(link.href)
  }
  document.addEventListener('click', open)
  document.addEventListener('auxclick', open)
}

export function currentToken(): string {
  return sessionStorage.getItem(KEY) ?? ''
}
