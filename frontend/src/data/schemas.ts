// Made by 'npm run types' from the server's OpenAPI document; do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * SessionInfo
         * @description The role of the client, its name if its link is personal, and the directories that are served.
         */
        SessionInfo: {
            /** @enum {unknown} */
            role: "controller" | "viewer";
            name: string;
            version: string;
            directories: string[];
        };
        /**
         * RunList
         * @description All runs, the newest first. `problem` says why the list may be out of date; it is usually empty.
         */
        RunList: {
            runs: components["schemas"]["RunSummary"][];
            /** @default  */
            problem: string;
        };
        /**
         * RunSummary
         * @description A run in the list of runs.
         *
         *     Attributes:
         *         key: Its key in URLs and messages.
         *         id: Its id; empty if its files lack one.
         *         name: What it is called, which other runs may share: what people named it, or its own name.
         *         own_name: The name that its program gave it, by which a live run is found.
         *         title: Its name, with what distinguishes it from other runs of that name.
         *         state: Its state, or how it ended; "silent" if it does not answer; "writing" if only its files show that it
         *             grows, and "recorded" once they have stopped.
         *         live: Whether it is running.
         *         hub_role: The role of this server on the hub over which it reaches the run: a "viewer" cannot send commands.
         *             Empty for the runs of this machine.
         *         source: The program that wrote its files.
         *         project: Its folder of those that are served, or its project on the hub; else empty.
         *         directory: Its run directory; empty if it does not record.
         *         host: Its host.
         *         started: In seconds since the Unix epoch, or `null` if it is unknown.
         *         ended: Likewise. Other programs rarely say when they end: then when the last record was made.
         *         changed: When its files last changed, or `null`.
         *         version: A text that changes when its files do; empty if it has none.
         *         described: A number that changes when the description of the live run does.
         *         last_step: The last known step, or `null`.
         *         config: Its configuration.
         *         metrics: The tags that its files call its metrics.
         *         why: Why it ended, or who asked it to stop: an exception with its place, a signal, a client; empty if not known.
         *         sentence: How it is, and why, such as "failed at batch 199 after 3 min: OSError: disk full"; of a live run
         *             without what changes with every event.
         *         commit: The first digits of its git commit, and ", with changes" if tracked files differed; empty if not known.
         *         alerts: Its alerts, as far as it could say: how many, and the last one.
         *         problem: Its faults, or empty.
         *         annotations: What people wrote down about it.
         */
        RunSummary: {
            key: string;
            id: string;
            name: string;
            own_name: string;
            title: string;
            /** @enum {unknown} */
            state: "died" | "ended" | "failed" | "paused" | "quiet" | "recorded" | "running" | "silent" | "stopping" | "terminated" | "writing";
            live: boolean;
            /** @enum {unknown} */
            hub_role: "" | "controller" | "viewer";
            /** @enum {unknown} */
            source: "mindspore" | "mlflow" | "sightglass" | "tensorboard" | "trackio" | "wandb";
            project: string;
            directory: string;
            host: string;
            started: number | null;
            ended: number | null;
            changed: number | null;
            version: string;
            described: number;
            last_step: (number | string) | null;
            config: Record<string, unknown>;
            metrics: string[];
            why: string;
            sentence: string;
            commit: string;
            alerts: components["schemas"]["AlertsInfo"];
            problem: string;
            annotations: components["schemas"]["Annotations"];
        };
        /**
         * AlertsInfo
         * @description The alerts of a run so far: how many, and the title, the level and the time of the last one.
         */
        AlertsInfo: {
            /** @default 0 */
            n: number;
            /** @default  */
            title: string;
            /** @default  */
            level: string;
            /** @default 0 */
            wall_time: number;
        };
        /**
         * Annotations
         * @description What people wrote down about a run.
         *
         *     Attributes:
         *         name: What it is called instead of the name that its program gave it, or empty.
         *         labels: Its labels, in the order in which they were added.
         *         notes: A text in Markdown.
         *         archived: Whether lists leave it out unless they are asked for it.
         *         baseline: Whether others are compared with it.
         *         deleted: When it was put into the trash, in seconds since the Unix epoch, or 0. Its files stay as they are.
         */
        Annotations: {
            /** @default  */
            name: string;
            /** @default [] */
            labels: string[];
            /** @default  */
            notes: string;
            /** @default false */
            archived: boolean;
            /** @default false */
            baseline: boolean;
            /** @default 0 */
            deleted: number;
        };
        /**
         * RunDetail
         * @description A run with its description, its history of commands, and the streams that it evaluates.
         *
         *     `sentence` has what changes with every event, too, such as "running, batch 12,345, 38/s, the last 0.2 s ago".
         *     `not_shown` says how many values in its files cannot be shown, by what they are, such as `{"graph": 1}`. `findings`
         *     is what looks wrong: of the files of a run that grows, as of some seconds ago.
         */
        RunDetail: {
            key: string;
            id: string;
            name: string;
            own_name: string;
            title: string;
            /** @enum {unknown} */
            state: "died" | "ended" | "failed" | "paused" | "quiet" | "recorded" | "running" | "silent" | "stopping" | "terminated" | "writing";
            live: boolean;
            /** @enum {unknown} */
            hub_role: "" | "controller" | "viewer";
            /** @enum {unknown} */
            source: "mindspore" | "mlflow" | "sightglass" | "tensorboard" | "trackio" | "wandb";
            project: string;
            directory: string;
            host: string;
            started: number | null;
            ended: number | null;
            changed: number | null;
            version: string;
            described: number;
            last_step: (number | string) | null;
            config: Record<string, unknown>;
            metrics: string[];
            why: string;
            sentence: string;
            commit: string;
            alerts: components["schemas"]["AlertsInfo"];
            problem: string;
            annotations: components["schemas"]["Annotations"];
            description: components["schemas"]["Description"] | null;
            history: components["schemas"]["HistoryEntry"][];
            streams: components["schemas"]["StreamInfo"][];
            not_shown: {
                [key: string]: number;
            };
            findings: components["schemas"]["Finding"][];
        };
        /**
         * Description
         * @description The description of a run; `state` of a live run is "running", "quiet", "paused" or "stopping".
         *
         *     It is quiet if none of its events has happened for ten times as long as usual, and for ten seconds: it is stuck, or
         *     evaluates for long. `RemoteRun.stacks` says where it is.
         *
         *     `functions` has the first lines of the docstrings of the run's own functions, `lent` has who may call them.
         *     `sets_attributes` is whether numbers inside offered objects can be set, such as `batch.optimizer.lr`.
         *     `alerts_may` has the commands that rules of alerts may send: "stop", "pause", and the names of controls.
         *     `failures` has the parts of the run that failed in the background: how often, and the last error.
         *     `ending` is why it ended, or who asked it to stop.
         *     `facts` are about its program, see `sightglass.Facts`: "command", "python", "packages", "git" and others.
         *     `alerts` counts its alerts; the history has them.
         *     `last_step` is the highest last step of what was recorded; a live run does not know it.
         */
        Description: {
            /** @default  */
            name: string;
            /** @default  */
            id: string;
            /** @default 0 */
            pid: number;
            /** @default  */
            host: string;
            /** @default  */
            state: string;
            /** @default 0 */
            wall_time: number;
            /** @default 0 */
            started: number;
            /** @default {} */
            config: Record<string, unknown>;
            /** @default  */
            directory: string;
            /** @default {} */
            events: {
                [key: string]: components["schemas"]["EventInfo"];
            };
            /** @default {} */
            controls: {
                [key: string]: components["schemas"]["ControlInfo"];
            };
            /** @default {} */
            actions: {
                [key: string]: components["schemas"]["ActionInfo"];
            };
            /** @default {} */
            functions: {
                [key: string]: string;
            };
            /** @default [] */
            streams: components["schemas"]["StreamInfo"][];
            /** @default 0 */
            n_clients: number;
            /** @default 0 */
            n_pending_commands: number;
            /** @default {} */
            failures: {
                [key: string]: string;
            };
            /** @default {} */
            lent: {
                [key: string]: components["schemas"]["LentFunctionInfo"];
            };
            /** @default false */
            sets_attributes: boolean;
            /** @default [] */
            alerts_may: string[];
            /** @default {} */
            facts: Record<string, unknown>;
            /**
             * @default {
             *       "error": "",
             *       "frames": [],
             *       "signal": "",
             *       "stopped_by": ""
             *     }
             */
            ending: components["schemas"]["Ending"];
            /**
             * @default {
             *       "n": 0,
             *       "title": "",
             *       "level": "",
             *       "wall_time": 0
             *     }
             */
            alerts: components["schemas"]["AlertsInfo"];
            /** @default null */
            last_step: (number | string) | (number | string) | null;
        };
        /**
         * EventInfo
         * @description One event of a run: where it comes from, how often it happened, its observables, and a remark.
         *
         *     `n_lost` counts the values, or parts of them, that could not be copied for snapshots. `age_s` is how many seconds
         *     ago it last happened, `interval_s` how many usually lie between two, `busy_s` for how many of these the thread that
         *     called `init` works itself, without waiting, and `longest_s` how many there were at most lately; `None` if that is
         *     not known.
         */
        EventInfo: {
            /** @default observe */
            origin: string;
            /** @default 0 */
            n_events: number;
            /** @default false */
            snapshot: boolean;
            /** @default {} */
            observables: {
                [key: string]: components["schemas"]["ObservableInfo"];
            };
            /** @default  */
            note: string;
            /** @default 0 */
            n_lost: number;
            /** @default null */
            age_s: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            /** @default null */
            interval_s: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            /** @default null */
            busy_s: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            /** @default null */
            longest_s: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
        };
        /**
         * ObservableInfo
         * @description One observable: its type, with dtype and shape for arrays; an example; a mapping's fields by path.
         *
         *     Of an object, the fields are the numbers that it stores. `step` is the step of the event that the example is from,
         *     if the run knows it.
         */
        ObservableInfo: {
            /** @default  */
            type: string;
            /** @default  */
            example: string;
            /** @default {} */
            fields: {
                [key: string]: string;
            };
            /** @default null */
            step: (number | string) | (number | string) | null;
        };
        /**
         * ControlInfo
         * @description One control of a run; `where` is the line that declared it.
         */
        ControlInfo: {
            /** @default  */
            type: string;
            /** @default null */
            value: unknown;
            /** @default null */
            min: number | (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            /** @default null */
            max: number | (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            /** @default null */
            choices: unknown[] | null;
            /** @default  */
            where: string;
        };
        /**
         * ActionInfo
         * @description One action of a run: the first line of its docstring, its arguments, and the line that declared it.
         */
        ActionInfo: {
            /** @default  */
            doc: string;
            /** @default  */
            where: string;
            /** @default  */
            signature: string;
            /** @default [] */
            parameters: components["schemas"]["ParameterInfo"][];
        };
        /**
         * ParameterInfo
         * @description One argument of an action, which can be given by name; without a `default`, as text, it must be given.
         */
        ParameterInfo: {
            /** @default  */
            name: string;
            /** @default  */
            type: string;
            /** @default  */
            default: string;
        };
        /**
         * StreamInfo
         * @description One query that a run evaluates: its clients, whether it is recorded, its costs. Counts as in `Statistics`.
         */
        StreamInfo: {
            /** @default 0 */
            stream: number;
            /** @default  */
            query: string;
            /** @default  */
            tag: string;
            /** @default [] */
            clients: string[];
            /** @default 0 */
            n_records: number;
            /** @default 0 */
            n_events: number;
            /** @default 0 */
            n_skipped: number;
            /** @default 0 */
            n_dropped: number;
            /** @default 0 */
            n_unpaired: number;
            /** @default 0 */
            n_errors: number;
            /** @default 0 */
            n_failures: number;
            /** @default  */
            last_error: string;
            /** @default 1 */
            stride: number;
            /** @default 0 */
            spent_s: number;
            /** @default false */
            recorded: boolean;
        };
        /**
         * LentFunctionInfo
         * @description One function of the run that queries may call: whether viewers may, too, and why it is refused, if it is.
         *
         *     `n_calls` counts its calls, `n_refused` the queries that asked for it after it was refused.
         */
        LentFunctionInfo: {
            /** @default false */
            viewers: boolean;
            /** @default  */
            refused: string;
            /** @default 0 */
            n_calls: number;
            /** @default 0 */
            n_refused: number;
        };
        /**
         * Ending
         * @description Why a run ended; all empty if by itself, or if it could not say.
         *
         *     Attributes:
         *         error: The exception that ended it, with its message, without secrets.
         *         frames: The last calls before the exception, the innermost last.
         *         signal: The name of the signal, such as "SIGTERM".
         *         stopped_by: The client that asked it to stop.
         */
        Ending: {
            /** @default  */
            error: string;
            /** @default [] */
            frames: components["schemas"]["StackFrame"][];
            /** @default  */
            signal: string;
            /** @default  */
            stopped_by: string;
        };
        /**
         * StackFrame
         * @description One call in a stack: the file as tracebacks name it, the line that runs, the function.
         */
        StackFrame: {
            /** @default  */
            file: string;
            /** @default 0 */
            line: number;
            /** @default  */
            function: string;
        };
        /**
         * HistoryEntry
         * @description One command in a run's history, or an alert: its name is the title, its value the text, its note the level.
         *
         *     `error` is empty if the command succeeded; `client` is empty for a command of the run itself;
         *     `note` is what its client was told.
         */
        HistoryEntry: {
            /** @default  */
            kind: string;
            /** @default  */
            name: string;
            /** @default null */
            value: unknown;
            /** @default  */
            event: string;
            /** @default -1 */
            index: number;
            /** @default -1 */
            step: (number | string) | (number | string);
            /** @default 0 */
            wall_time: number;
            /** @default null */
            old: unknown;
            /** @default null */
            result: unknown;
            /** @default  */
            error: string;
            /** @default  */
            client: string;
            /** @default  */
            note: string;
        };
        /**
         * Finding
         * @description Something that looks wrong in a run.
         *
         *     Attributes:
         *         kind: Which check found it, such as "nan": the same word in each run.
         *         level: "error" where the training is lost or over, else "warning".
         *         text: What it is, in a sentence with its figures.
         *         figures: The figures by name.
         *         query: The query that shows it, for `stream`, `ask` and the page; empty if it is about no series.
         *         step: Where it is, if that is known.
         *         wall_time: When, in seconds since the Unix epoch.
         *         detail: More of it, such as the stack of a run that is quiet; the innermost call comes last.
         *         also: The queries of further series of which the same is true, at most ten.
         */
        Finding: {
            kind: string;
            /** @enum {unknown} */
            level: "error" | "warning";
            text: string;
            figures: {
                [key: string]: (number | ("NaN" | "Infinity" | "-Infinity")) | string;
            };
            /** @default  */
            query: string;
            /** @default null */
            step: (number | string) | null;
            /** @default null */
            wall_time: number | null;
            /** @default  */
            detail: string;
            /** @default [] */
            also: string[];
        };
        /**
         * TagList
         * @description The series of a run, sorted by tag, and the charts of several of them that its files ask for.
         */
        TagList: {
            tags: components["schemas"]["Tag"][];
            /** @default [] */
            charts: components["schemas"]["ChartInfo"][];
        };
        /**
         * Tag
         * @description A recorded series; `query` is its query for the socket.
         *
         *     `dtype` is that of its latest array as it was logged, `str` of strings, or empty. `stored_as` is the dtype that the
         *     file has instead. `shape` is that of its latest array, such as `[2, 3]`, or empty. `name` is what other requests
         *     take as `tag`: the tag, with the kind of its values where a file may have several, such as `kernel:histogram`.
         */
        Tag: {
            tag: string;
            name: string;
            /** @enum {unknown} */
            type: "audio" | "figure" | "histogram" | "image" | "other" | "scalar" | "table" | "tensor" | "text";
            /** @default  */
            dtype: string;
            /** @default  */
            stored_as: string;
            /** @default  */
            shape: string;
            n: number;
            first_step: (number | string) | null;
            last_step: (number | string) | null;
            query: string;
        };
        /**
         * ChartInfo
         * @description A chart of several tags that the run's files ask for, such as TensorBoard's custom scalars.
         */
        ChartInfo: {
            category: string;
            title: string;
            tags: string[];
        };
        /**
         * RunTexts
         * @description What differed from a run's git commit, and what it printed last if it failed; empty if not written.
         */
        RunTexts: {
            /** @default  */
            changes: string;
            /** @default  */
            printed: string;
        };
        /**
         * Completions
         * @description The ways to go on: where the text begins that they replace, up to the caret, and the call around the caret.
         */
        Completions: {
            start: number;
            /** @default [] */
            items: components["schemas"]["Completion"][];
            /** @default null */
            call: components["schemas"]["FunctionInfo"] | null;
        };
        /**
         * Completion
         * @description One way to go on.
         *
         *     Attributes:
         *         text: What is written between the start and the caret.
         *         kind: What it is.
         *         detail: The type of a value, or a signature.
         *         doc: What it does, or what it is now.
         *         whole: For a call, what is written instead where nothing follows; empty if it needs arguments.
         *         over: How many characters before the start it replaces, too: a name in brackets takes the place of a dot.
         */
        Completion: {
            text: string;
            /** @enum {unknown} */
            kind: "attribute" | "event" | "function" | "name" | "observable" | "reducer" | "run's function" | "window";
            /** @default  */
            detail: string;
            /** @default  */
            doc: string;
            /** @default  */
            whole: string;
            /** @default 0 */
            over: number;
        };
        /**
         * FunctionInfo
         * @description A function or reducer that queries can call.
         */
        FunctionInfo: {
            name: string;
            signature: string;
            doc: string;
            /** @enum {unknown} */
            kind: "function" | "reducer";
        };
        /**
         * ColumnsReply
         * @description The values of columns, in the order of the request, each with a value for each of `keys`, or `null`.
         *
         *     `tags` are the tags that columns can have, those of most runs first, and `statistics` what may follow them. The
         *     totals of `n_pending` runs are not read yet: ask again for them. `without` are the runs whose series have none: they
         *     are damaged, too large to be added up, or have too many series.
         */
        ColumnsReply: {
            keys: string[];
            values: unknown[][];
            tags: string[];
            statistics: string[];
            n_pending: number;
            without: string[];
        };
        /**
         * ScalarPoints
         * @description The points of a series: the extremes of each pixel, out of `n` points in the range.
         *
         *     `mean` is the mean of all points between each point and the one before, NaN where they are joined straight; it is
         *     empty if no points are left out. Each of `parts` is a part of the line that is drawn by itself, the newest last: its
         *     first point, the one after its last, its opacity, and the number of its pass. `integers` has the place among the
         *     points and the digits of each integer beyond 2^53, of which `y` has the nearest float64. `restarts` are the places
         *     on x where the run continued after a restart. `tracks` names the further step tracks of its records. A request with
         *     `cursor` as `since` gets only what came later, if `continued`. `n_pending` records of a statistic of tensors are not
         *     read yet: ask again for them.
         */
        ScalarPoints: {
            tag: string;
            n: number;
            thinned: boolean;
            x: (number | string)[];
            y: (number | ("NaN" | "Infinity" | "-Infinity"))[];
            wall: (number | ("NaN" | "Infinity" | "-Infinity"))[];
            step: (number | string)[];
            mean: (number | ("NaN" | "Infinity" | "-Infinity"))[];
            parts: (number | ("NaN" | "Infinity" | "-Infinity"))[][];
            integers: (number | string)[][];
            restarts: (number | string)[];
            tracks: string[];
            cursor: string;
            continued: boolean;
            n_pending: number;
        };
        /**
         * PackedScalars
         * @description One of the series of `POST /scalars`: its points, or the `error` why there are none.
         *
         *     The columns `x` to `mean` are bytes: float64, little endian. The other fields are those of `ScalarPoints`.
         */
        PackedScalars: {
            run: string;
            tag: string;
            /** @default null */
            error: components["schemas"]["ErrorInfo"] | null;
            /** @default 0 */
            n: number;
            /** @default false */
            thinned: boolean;
            /** @default  */
            x: string;
            /** @default  */
            y: string;
            /** @default  */
            wall: string;
            /** @default  */
            step: string;
            /** @default  */
            mean: string;
            /** @default [] */
            parts: (number | ("NaN" | "Infinity" | "-Infinity"))[][];
            /** @default [] */
            integers: (number | string)[][];
            /** @default [] */
            restarts: (number | string)[];
            /** @default [] */
            tracks: string[];
            /** @default  */
            cursor: string;
            /** @default false */
            continued: boolean;
            /** @default 0 */
            n_pending: number;
        };
        /**
         * ErrorInfo
         * @description An error: its type in the library, its message, and, for an error in a query, the position in the text.
         */
        ErrorInfo: {
            type: string;
            message: string;
            /** @default null */
            position: number | null;
        };
        /**
         * TableReply
         * @description A slice of a tensor, or a window of it: `rows` and `columns` are the indices of its cells in the tensor.
         *
         *     `n_rows` and `n_columns` count those of the whole slice; they are null if the slice lacks that dimension.
         */
        TableReply: {
            shape: number[];
            dtype: string;
            slice: string;
            step: number | string;
            n_rows: number | null;
            n_columns: number | null;
            rows: number[];
            columns: number[];
            values: unknown;
            statistics: components["schemas"]["TableStatistics"] | null;
        };
        /**
         * TableStatistics
         * @description Statistics of the slice, and of the whole tensor.
         */
        TableStatistics: {
            slice: components["schemas"]["StatisticsInfo"];
            whole: components["schemas"]["StatisticsInfo"] | null;
        };
        /**
         * StatisticsInfo
         * @description Extremes, mean, standard deviation and norm of the finite values, and the counts of all kinds.
         */
        StatisticsInfo: {
            n: number;
            min: number | ("NaN" | "Infinity" | "-Infinity");
            max: number | ("NaN" | "Infinity" | "-Infinity");
            mean: number | ("NaN" | "Infinity" | "-Infinity");
            std: number | ("NaN" | "Infinity" | "-Infinity");
            norm: number | ("NaN" | "Infinity" | "-Infinity");
            n_zero: number;
            n_negative: number;
            n_positive: number;
            n_nan: number;
            n_posinf: number;
            n_neginf: number;
        };
        /**
         * Steps
         * @description The steps and wall times of a series, without the damaged ones.
         */
        Steps: {
            steps: (number | string)[];
            wall_times: number[];
            /** @default [] */
            damaged: components["schemas"]["DamagedStep"][];
        };
        /**
         * DamagedStep
         * @description A step whose record is probably damaged, and where.
         */
        DamagedStep: {
            step: number | string;
            problem: string;
        };
        /**
         * FoundInfo
         * @description The place where the value was found.
         */
        FoundInfo: {
            found: boolean;
            /** @default null */
            step: (number | string) | null;
            /** @default [] */
            index: number[];
            /** @default null */
            value: unknown;
        };
        /**
         * HistogramsReply
         * @description For each step: edges, counts, numbers of values that are not finite, and percentiles 5, 25, 50, 75, 95.
         */
        HistogramsReply: {
            steps: (number | string)[];
            wall_times: number[];
            edges: (number | ("NaN" | "Infinity" | "-Infinity"))[][];
            counts: number[][];
            n_nan: number[];
            n_posinf: number[];
            n_neginf: number[];
            percentiles: (number | ("NaN" | "Infinity" | "-Infinity"))[][];
        };
        /**
         * StepStatistics
         * @description Statistics of a tensor's or histogram's values, a number for each step; without damaged records.
         *
         *     Counts that a histogram does not tell are -1. `n_pending` records are not read yet: ask again for them.
         */
        StepStatistics: {
            steps: (number | string)[];
            wall_times: number[];
            statistics: {
                [key: string]: (number | ("NaN" | "Infinity" | "-Infinity"))[];
            };
            n_pending: number;
        };
        /**
         * OverviewReply
         * @description All tensors of a run, sorted by tag; `steps` are those of all, thinned to 2,000.
         *
         *     `n_pending` records of `n_records` that the overview needs are not read yet: ask again for them.
         */
        OverviewReply: {
            tensors: components["schemas"]["TensorOverview"][];
            steps: (number | string)[];
            n_records: number;
            n_pending: number;
        };
        /**
         * TensorOverview
         * @description A tensor or histograms: the latest record up to a step, and a statistic over the steps.
         *
         *     `step` and the statistics are `null` as long as that record is not read, and if it is damaged. Counts that a
         *     histogram does not tell are -1. `bars` are its finite values, counted in equal bins from `min` to `max`, as parts of
         *     255. `curve` has at most 32 evenly spaced records, to four digits, NaN where nothing is known.
         */
        TensorOverview: {
            tag: string;
            name: string;
            /** @enum {unknown} */
            type: "histogram" | "tensor";
            shape: string;
            n_steps: number;
            step: (number | string) | null;
            statistics: {
                [key: string]: number | ("NaN" | "Infinity" | "-Infinity");
            } | null;
            bars: number[];
            curve: (number | ("NaN" | "Infinity" | "-Infinity"))[];
        };
        /**
         * PictureList
         * @description The pictures of a step; `media` returns each by its number in the list.
         */
        PictureList: {
            step: number | string;
            wall_time: number;
            pictures: components["schemas"]["PictureInfo"][];
        };
        /**
         * PictureInfo
         * @description A picture's type, caption and size; the size is null for vector graphics and unknown formats.
         *
         *     Of a figure of Plotly, the caption is its title with the types of its traces, and the size is what it asks for.
         */
        PictureInfo: {
            media_type: string;
            caption: string;
            width: number | null;
            height: number | null;
        };
        /**
         * SoundList
         * @description The sounds of a step; `media` returns each as a WAV file by its number in the list.
         */
        SoundList: {
            step: number | string;
            wall_time: number;
            sounds: components["schemas"]["SoundInfo"][];
        };
        /**
         * SoundInfo
         * @description A sound: what it is in words, its length in seconds, and its largest sample as a part of full scale.
         *
         *     `rate` is the number of samples in a second of each channel, `n_samples` the number of all of one channel. `peaks`
         *     has a list for each channel: the lowest and the highest sample at up to 400 places.
         */
        SoundInfo: {
            about: string;
            seconds: number;
            rate: number;
            n_samples: number;
            dtype: string;
            peak: number | ("NaN" | "Infinity" | "-Infinity");
            peaks: (number | ("NaN" | "Infinity" | "-Infinity"))[][][];
        };
        /**
         * TextList
         * @description Texts in the order of their steps.
         */
        TextList: {
            texts: components["schemas"]["TextInfo"][];
        };
        /**
         * TextInfo
         * @description A text, its step and its wall time.
         */
        TextInfo: {
            step: number | string;
            wall_time: number;
            text: string;
        };
        /**
         * RunMoment
         * @description What a run recorded by a time: of each series the last record, and the texts around it in the order of time.
         *
         *     `step` is the step that the run had reached, and `before` and `after` are the times of the steps around it, or
         *     `null`. `n_more` counts series that are left out, and texts.
         */
        RunMoment: {
            wall_time: number;
            step: (number | string) | null;
            before: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            after: (number | ("NaN" | "Infinity" | "-Infinity")) | null;
            numbers: components["schemas"]["MomentNumber"][];
            texts: components["schemas"]["MomentText"][];
            others: components["schemas"]["MomentOther"][];
            n_more: number;
        };
        /**
         * MomentNumber
         * @description The last number of a series by then, as exact as it was recorded; `name` is what other requests take as `tag`.
         */
        MomentNumber: {
            tag: string;
            name: string;
            step: number | string;
            wall_time: number;
            value: number | (number | ("NaN" | "Infinity" | "-Infinity")) | string;
        };
        /**
         * MomentText
         * @description A text around the time.
         */
        MomentText: {
            tag: string;
            step: number | string;
            wall_time: number;
            text: string;
        };
        /**
         * MomentOther
         * @description Where the last tensor, histogram, picture, sound or table of a series by then is.
         */
        MomentOther: {
            tag: string;
            name: string;
            /** @enum {unknown} */
            type: "audio" | "figure" | "histogram" | "image" | "other" | "scalar" | "table" | "tensor" | "text";
            step: number | string;
            wall_time: number;
        };
        /**
         * RowsReply
         * @description Rows of a table, how many it has, and how many were found; a picture is `{png, caption}` in base64.
         */
        RowsReply: {
            step: number | string;
            wall_time: number;
            columns: components["schemas"]["ColumnInfo"][];
            n_rows: number;
            n_found: number;
            offset: number;
            rows: unknown[][];
        };
        /**
         * ColumnInfo
         * @description A column's name, and its dtype or "text", "image", "figure", "audio", "mixed".
         */
        ColumnInfo: {
            name: string;
            type: string;
        };
        /**
         * Checked
         * @description The tag of the query's series, and its canonical text.
         */
        Checked: {
            ok: boolean;
            tag: string;
            canonical: string;
        };
        /**
         * Acknowledgement
         * @description The run's reply to a command.
         *
         *     Attributes:
         *         applied: Whether the run has applied the command. If not, it still waits for an event, which `note` names; if
         *             the run expects no such event, the reply comes at once, and `note` says what to do.
         *         event: The event at which it was applied.
         *         index: The event's number.
         *         step: The event's step.
         *         wall_time: When it was applied, in seconds since the Unix epoch.
         *         old: The control's value before.
         *         result: The control's value after, or what the action returned.
         *         note: The run's remark: what a command waits for, or that a scheduler will overwrite the value that was set.
         */
        Acknowledgement: {
            /** @default false */
            applied: boolean;
            /** @default  */
            event: string;
            /** @default -1 */
            index: number;
            /** @default -1 */
            step: (number | string) | (number | string);
            /** @default 0 */
            wall_time: number;
            /** @default null */
            old: unknown;
            /** @default null */
            result: unknown;
            /** @default  */
            note: string;
        };
        /**
         * Recorded
         * @description The tag under which the records are written.
         */
        Recorded: {
            tag: string;
            record: boolean;
        };
        /**
         * RunStacks
         * @description Where the main threads of a run are, in a line; and the stacks of all threads, as text.
         */
        RunStacks: {
            summary: string;
            text: string;
        };
        /**
         * Chosen
         * @description The view that the streams share, and all views that can show them.
         */
        Chosen: {
            view: string;
            kinds: string[];
            possible: string[];
        };
        /**
         * AnnotatedRuns
         * @description The runs that were changed, as in the list of runs; and by their keys why others were not.
         */
        AnnotatedRuns: {
            runs: components["schemas"]["RunSummary"][];
            problems: {
                [key: string]: string;
            };
        };
        /**
         * SavedViewList
         * @description The addresses of the saved views by their names.
         */
        SavedViewList: {
            views: {
                [key: string]: string;
            };
        };
        /**
         * ColumnsRequest
         * @description The names of columns.
         *
         *     A tag and a statistic, such as `val/accuracy.max`; a tag and where another is best, `loss@val/accuracy.max`;
         *     `config.` and a key; `run.` and a fact of the list of runs.
         */
        ColumnsRequest: {
            columns: string[];
        };
        /**
         * RunFileRequest
         * @description The columns of a file, named as for `/columns`, and the keys of its runs in their order; by default all runs.
         */
        RunFileRequest: {
            columns: string[];
            /** @default null */
            runs: string[] | null;
        };
        /**
         * ScalarsRequests
         * @description Several series.
         */
        ScalarsRequests: {
            requests: components["schemas"]["ScalarsRequest"][];
        };
        /**
         * ScalarsRequest
         * @description A series of numbers, and its run.
         */
        ScalarsRequest: {
            tag: string;
            /** @default step */
            x: string;
            /** @default null */
            from: number | null;
            /** @default null */
            to: number | null;
            /** @default 1000 */
            points: number;
            /** @default  */
            since: string;
            run: string;
        };
        /**
         * CheckRequest
         * @description A query, or the tag of a series of a recorded run.
         */
        CheckRequest: {
            query: string;
        };
        /**
         * CommandRequest
         * @description A command: `set` NAME to VALUE, `call` NAME with the list VALUE and the KEYWORDS, `pause`, `resume` or `stop`.
         *
         *     AT names an event.
         *
         *     A pause lasts until `resume`. If `hold` is false, it also ends when the server disconnects from the run.
         */
        CommandRequest: {
            /** @enum {unknown} */
            kind: "call" | "pause" | "resume" | "set" | "stop";
            /** @default  */
            name: string;
            /** @default null */
            value: unknown;
            /** @default {} */
            keywords: Record<string, unknown>;
            /** @default null */
            at: string | null;
            /** @default true */
            hold: boolean;
        };
        /**
         * RecordRequest
         * @description A query whose records are to be written to the run's directory from now on, or no longer.
         */
        RecordRequest: {
            query: string;
            /** @default true */
            record: boolean;
            /** @default false */
            confirm: boolean;
        };
        /**
         * Request
         * @description The parameters of an endpoint's URL, or its body.
         */
        Request: Record<string, unknown>;
        /**
         * ChooseRequest
         * @description The forms of the streams that share a panel, the view to use if it is possible, and the names of the streams.
         */
        ChooseRequest: {
            forms: components["schemas"]["FormInfo"][];
            /** @default null */
            view: string | null;
            /** @default [] */
            names: string[];
        };
        /**
         * FormInfo
         * @description The form of a stream's values, as in the socket's `view` message.
         */
        FormInfo: {
            kind: string;
            /** @default 1 */
            length: number;
        };
        /**
         * AnnotateRequest
         * @description The changes, at most one for each run.
         */
        AnnotateRequest: {
            edits: components["schemas"]["RunEdit"][];
        };
        /**
         * RunEdit
         * @description A change of a run's annotations; what is `null` stays as it is.
         */
        RunEdit: {
            /** @default null */
            name: string | null;
            /** @default null */
            labels: string[] | null;
            /** @default [] */
            add_labels: string[];
            /** @default [] */
            remove_labels: string[];
            /** @default null */
            notes: string | null;
            /** @default null */
            archived: boolean | null;
            /** @default null */
            baseline: boolean | null;
            /** @default null */
            deleted: boolean | null;
            key: string;
        };
        /**
         * SavedView
         * @description A name, and the fragment of an address such as `#/charts?smooth=0.5`; `null` removes the view.
         */
        SavedView: {
            name: string;
            address: string | null;
        };
        /**
         * RenamedView
         * @description The name of a view, and what it is called from now on.
         */
        RenamedView: {
            name: string;
            renamed: string;
        };
        /**
         * PageFileRequest
         * @description An address of the page, such as `#/charts?smooth=0.5`, and the keys of its runs, those that are drawn first.
         */
        PageFileRequest: {
            address: string;
            runs: string[];
        };
        /**
         * ErrorReply
         * @description The reply to a request that failed.
         */
        ErrorReply: {
            error: components["schemas"]["ErrorInfo"];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
