// The query history of this browser, newest first, for the arrow keys.

const KEY = 'sightglass-asked'
const MAX = 100

export function readQueryHistory(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? '[]')
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === 'string') : []
  } catch {
    return []
  }
}

export function noteQuery(query: string): void {
  localStorage.setItem(KEY, JSON.stringify([query, ...readQueryHistory().filter((one) => one !== query)].slice(0, MAX)))
}
