const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

/** A text within SVG, or as one of its attributes. */
export const escaped = (text: string): string => text.replace(/[&<>"']/g, (c) => ESCAPES[c]!)
