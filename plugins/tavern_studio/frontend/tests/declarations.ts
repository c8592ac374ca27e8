/**
 * Front ends that were written for an earlier minor version still fit: each version's declarations are kept in
 * `declarations/`, a copy of `src/extensions/types.ts` as it was released. Nothing here is run: the type check is the test.
 */
import type * as now from "../src/extensions/types";
import type * as v0_1 from "./declarations/0.1";

/** `New` can be used wherever `Old` was. */
type Fits<New extends Old, Old> = New;

/** Methods as functions, whose parameters are compared strictly. */
type Strict<T> = {
  [Key in keyof T]: T[Key] extends (...values: infer Values) => infer Result
    ? (...values: Values) => Result
    : T[Key] extends object
      ? Strict<T[Key]>
      : T[Key];
};

export type Checked = [
  // What the page gives has all that it had, and takes all that it took.
  Fits<Strict<now.ExtensionApi>, Strict<v0_1.ExtensionApi>>,
  Fits<Strict<now.SandboxApi>, Strict<v0_1.SandboxApi>>,
  Fits<now.ClientHooks, v0_1.ClientHooks>,
  Fits<now.ReadOnlyServices, v0_1.ReadOnlyServices>,
  Fits<now.NodeUiProps, v0_1.NodeUiProps>,
  Fits<now.CommandContext, v0_1.CommandContext>,
  Fits<now.PermissionRefusal, v0_1.PermissionRefusal>,
  // What a plugin gives may be what it was.
  Fits<v0_1.OutletName, now.OutletName>,
  Fits<v0_1.PartId, now.PartId>,
  Fits<v0_1.Setup, now.Setup>,
  Fits<v0_1.Wrapper, now.Wrapper>,
  Fits<v0_1.Ordered, now.Ordered>,
  Fits<v0_1.ExtensionCommand, now.ExtensionCommand>,
  Fits<v0_1.MenuItem, now.MenuItem>,
  Fits<v0_1.Panel, now.Panel>,
  Fits<v0_1.Route, now.Route>,
  Fits<Partial<v0_1.WorkflowManager>, Partial<now.WorkflowManager>>,
];
