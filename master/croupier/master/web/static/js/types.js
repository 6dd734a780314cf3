// Types of the HTTP API that the page uses; `GET /api/v1/openapi.json` has all of them.

/**
 * @typedef {{ text: string, milli: Record<string, number>, ranges?: Record<string, number[][]>, sets?: Record<string, string[]> }} Amount
 * @typedef {{ id: string, time_ms: number, kind: string, text: string, agent_id?: string, framework_id?: string, task_id?: string, role?: string }} ClusterEvent
 * @typedef {{ items: any[], next: string | null }} Page
 *
 * A view of the page. `load` asks the API and draws; it is called first, and again when something
 * changed. `stop` ends what the view has under way.
 * @typedef {{ title: string, root: HTMLElement, load: (signal: AbortSignal) => Promise<void>, stop?: () => void,
 *   changed?: (event: ClusterEvent) => boolean, overview?: (data: any) => void, search?: HTMLInputElement | null }} View
 */
export {};
