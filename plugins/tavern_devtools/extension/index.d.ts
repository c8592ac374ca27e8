/**
 * What a plugin's front end is given: the types of `@tavern-host/extension`. Nothing else of the page is an interface:
 * not its DOM, not its other modules. This file stands alone, so that its declarations can be shipped.
 */
import type { Component } from "vue";

/** Takes back what was done. Calling it twice does nothing. All of a plugin is taken back when it is unloaded. */
export type Disposer = () => void;

/** Where the studio has room for something of a plugin; docs/studio-extensions.md says where each one is. */
export type OutletName =
  | "layout:header:before-tabs"
  | "layout:header:after-tabs"
  | "layout:header:right"
  | "editor:toolbar:left"
  | "editor:toolbar:center"
  | "editor:toolbar:right"
  | "editor:canvas:overlay"
  | "editor:statusbar:left"
  | "editor:statusbar:right"
  | "sidebar:icon-bar:tabs:before"
  | "sidebar:icon-bar:tabs:after"
  | "sidebar:icon-bar:bottom:before"
  | `sidebar:panel:header${"" | `[${string}]`}`
  | `sidebar:panel:footer${"" | `[${string}]`}`
  | "node:header:left"
  | "node:header:right"
  | "node:footer"
  | "modal:footer";

/** A part of the studio that can be wrapped or replaced. */
export type PartId =
  | "ui:BaseNode"
  | "ui:NodeInputControl"
  | "ui:GraphEditor"
  | "ui:ContextMenu"
  | "ui:SidebarManager"
  | "ui:HomeSidebar"
  | "ui:StatusBar"
  | "ui:AssistantPanel"
  | "ui:RightPreviewPanel"
  | "ui:SettingsPanel"
  | "ui:MainMenu";

/** Makes the component that is shown in place of `original`, and shows that somewhere in its own. */
export type Wrapper = (original: Component) => Component;

/** The place among others at one target: lower ones come first, of wraps innermost. The operator's order goes before. */
export interface Ordered {
  order?: number;
}

/** Something that can be done: it stands in the main menu and in the palette, and has keys where they are given. */
export interface ExtensionCommand {
  /** An id of the plugin's own; the studio puts the plugin's name before it. */
  id: string;
  title: string;
  /** `mod` is Ctrl, or ⌘ on a Mac: `mod+shift+z`. */
  keys?: string;
  /** Whether it can be done now. */
  when?: () => boolean;
  run: (context: CommandContext) => unknown;
}

/** What a command is done to. */
export interface CommandContext {
  /** The workflow that is open, or undefined. */
  workflow?: string;
  /** The nodes that are selected in it. */
  nodes: string[];
}

export interface MenuItem extends ExtensionCommand {
  /** `main` (the default) is the menu of the mark at the top left, `context` the menu of the canvas and its nodes. */
  menu?: "main" | "context";
}

export interface Panel {
  id: string;
  title: string;
  /** One or two letters or an emoji; without it the first letter of the title. */
  icon?: string;
  /** Where it stands: beside the views, below them, or at their right. `left` is the default. */
  place?: "left" | "bottom" | "right";
  component: Component;
}

export interface Route {
  /** Below `#/x/PLUGIN`: `/` or `/board/:id`; what follows a colon is given to the component as a prop. */
  path: string;
  component: Component;
  /** With a title the page has a command that leads to it. */
  title?: string;
}

/** What a component that `nodes.registerUI` shows in a node is given as props. It emits `change` with a key and a value. */
export interface NodeUiProps {
  id: string;
  type: string;
  /** The values of its inputs. */
  values: Record<string, unknown>;
  /** What came out in the run that is shown. */
  outputs: Record<string, unknown> | null;
  /** The state of the run that is shown: `queued`, `running`, `complete`, `error`, … */
  status?: string;
}

/** What a component that `nodes.registerRenderer` shows a value with is given as props. */
export interface ValueProps {
  /** The value; of a Blob its handle: `{type: "blob", hash, mediaType, length}`. */
  value: unknown;
  /** Whether it stands on a node, where there are some 280 by 160 pixels. */
  compact: boolean;
}

/** Before a workflow is run. Changes hold for this run only. */
export interface BeforeExecute {
  readonly workflow: string;
  /** What is run, as in the workflow's file: nodes with `inputValues` and `configValues`, edges. */
  document: { nodes: { id: string; type: string; inputValues?: Record<string, unknown> }[] } & Record<string, unknown>;
  /** The values of the workflow's inputs. */
  inputs: Record<string, unknown>;
  /** Stop it. The reason is shown with the plugin's name. */
  veto(reason: string): void;
}

/** When a node is drawn, and again when one of these changes. Called often: not asynchronous, and to be quick. */
export interface NodeRender {
  readonly id: string;
  readonly type: string;
  readonly title: string;
  readonly values: Readonly<Record<string, unknown>>;
  readonly status?: string;
  /** Classes for the node's element. */
  classes: string[];
  /** A short text in the node's header. */
  badge?: string;
}

/** Before the settings of a plugin are saved. */
export interface SettingsSave {
  readonly plugin: string;
  /** The new values by key. */
  values: Record<string, unknown>;
  veto(reason: string): void;
}

/** After somebody logged in, once for each login in this browser. */
export interface Login {
  readonly user: string;
}

/** The client hooks, by the name that `hooks.on` takes. */
export interface ClientHooks {
  "workflow:before-execute": BeforeExecute;
  "node:render:after": NodeRender;
  "settings:before-save": SettingsSave;
  /** The same as `settings:before-save`. */
  "settings:save:before": SettingsSave;
  "auth:login": Login;
}

/** Runs workflows. A replacement has any of these; what it lacks is done by the one that it replaces. */
export interface WorkflowManager {
  /** The open workflow as it is drawn, or undefined. */
  current(): { id: string; document: Record<string, unknown> } | undefined;
  list(): Promise<{ id: string; name: string }[]>;
  get(id: string): Promise<Record<string, unknown>>;
  /** Run what `POST /api/prompt` takes; returns the id of the run. */
  execute(prompt: Record<string, unknown>): Promise<{ promptId: string }>;
  interrupt(promptId: string): Promise<void>;
}

/** Messages of the server's socket. */
export interface Events {
  /** Hear messages of these types; `NODE_*` is all that begin so. */
  on(types: string[], listener: (message: { type: string; payload: Record<string, unknown> }) => void): Disposer;
}

/** The services of the page. `services.get` gives a read-only view: of `workflowManager` what only reads. */
export interface ClientServices {
  workflowManager: WorkflowManager;
  events: Events;
}

/** What only reads of each service, which is what `services.get` gives. */
export interface ReadOnlyServices {
  workflowManager: Pick<WorkflowManager, "current" | "list" | "get">;
  events: Events;
}

/** What `setup` is called with. It is the plugin's own, frozen, and refuses what was not granted with a `PermissionError`. */
export interface ExtensionApi {
  readonly plugin: { readonly name: string; readonly version: string };
  /** The version of this interface. */
  readonly apiVersion: string;
  readonly ui: {
    addMenuItem(item: MenuItem): Disposer;
    addPanel(panel: Panel): Disposer;
    registerOutletComponent(outlet: OutletName, component: Component, options?: Ordered): Disposer;
    wrapComponent(part: PartId, wrapper: Wrapper, options?: Ordered): Disposer;
    overrideComponent(part: PartId, component: Component): Disposer;
  };
  readonly nodes: {
    /** Show a component in the nodes of a type, in place of the controls of their inputs. See `NodeUiProps`. */
    registerUI(type: string, component: Component): Disposer;
    /** Show an SVG of your own as the icon of a node type. It takes the colour of the text around it (`currentColor`). */
    registerIcon(type: string, icon: Component): Disposer;
    /**
     * Show values with a component, on nodes, in the inspector and in runs: those of a media type (`image/tiff`, `model/*`), or
     * those of slots with a category (`matchCategories`). See `ValueProps`.
     */
    registerRenderer(kind: string, component: Component): Disposer;
  };
  readonly router: {
    addRoute(route: Route): Disposer;
    /** Go to a page of the plugin's own. */
    push(path: string): void;
  };
  readonly commands: { add(command: ExtensionCommand): Disposer };
  readonly hooks: {
    on<Name extends keyof ClientHooks>(
      name: Name,
      hook: (event: ClientHooks[Name]) => unknown,
      options?: Ordered,
    ): Disposer;
  };
  readonly services: {
    get<Name extends keyof ReadOnlyServices>(name: Name): ReadOnlyServices[Name];
    /** Give a service, or a function that makes it of the one in whose place it stands. */
    override<Name extends "workflowManager">(
      name: Name,
      service: Partial<ClientServices[Name]> | ((original: ClientServices[Name]) => Partial<ClientServices[Name]>),
    ): Disposer;
  };
  /** The value of an option of the plugin's own: `maxItems`, or the whole key. */
  getConfig<T = unknown>(option: string): T;
  onConfigChange<T = unknown>(option: string, hook: (value: T) => void): Disposer;
  /** The language of the page. */
  readonly locale: "en" | "zh";
  /** The text in the language of the page, with `{name}` filled in: `t({ en: "Hello", zh: "你好" })`. */
  t(texts: { en: string; zh?: string }, values?: Record<string, unknown>): string;
}

/** The default export of a front end's module. What it returns is called when the plugin is unloaded. */
export type Setup = (api: ExtensionApi) => void | Disposer | Promise<void | Disposer>;

/** What `setup` of a sandboxed front end is called with, once for each panel that is open. The page answers by messages. */
export interface SandboxApi extends Pick<ExtensionApi, "plugin" | "apiVersion" | "locale" | "t"> {
  /** The id of this panel. */
  readonly panel: string;
  /** The element to fill; `document` is the frame's own. */
  readonly root: HTMLElement;
  getConfig<T = unknown>(option: string): Promise<T>;
  onConfigChange<T = unknown>(option: string, listener: (value: T) => void): Disposer;
  /** What commands of the manifest do, while the panel is open. */
  readonly commands: { add(command: { id: string; run: () => unknown }): Disposer };
  /** What a route of the plugin's own answers: `path` is below `/api/x/PLUGIN/`. */
  request<T = unknown>(path: string, options?: { method?: "GET" | "POST"; body?: unknown }): Promise<T>;
}

/** Thrown by a call that was not granted. */
export interface PermissionRefusal extends Error {
  readonly name: "PermissionError";
  readonly plugin: string;
  /** What was refused: `ui.wrapComponent("ui:BaseNode")`. */
  readonly what: string;
  /** The permission that it needs: `ui.wrap:ui:BaseNode`. */
  readonly permission: string;
  readonly howToGrant: string;
}
