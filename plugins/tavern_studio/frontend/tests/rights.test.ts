import { expect, test } from "vitest";
import { isPermitted } from "../src/api/rights";

const role = (...permissions: string[]) => ({ permissions, session: "s1" });
const GRANT = "POST /api/plugins/{name}/grant";
const ADD = "POST /api/knowledge/{base}/entries";

test("an access alone holds for every path, and for no other access", () => {
  expect(isPermitted(role("read", "create"), "POST /api/prompt", "p")).toBe(true);
  expect(isPermitted(role("read", "create"), GRANT, "p")).toBe(false);
  expect(isPermitted(role("operate"), GRANT, "p")).toBe(true);
  expect(isPermitted(role("operate"), "GET /api/plugins", "p")).toBe(false);
});

test("an access with a pattern holds for what fits it alone", () => {
  const narrow = role("read", "create:/api/knowledge*", "operate:/api/plugins/*/grant");
  expect(isPermitted(narrow, ADD, "p")).toBe(true);
  expect(isPermitted(narrow, "POST /api/prompt", "p")).toBe(false);
  expect(isPermitted(narrow, GRANT, "p")).toBe(true);
  expect(isPermitted(narrow, "POST /api/plugins/{name}/revoke", "p")).toBe(false);
  expect(isPermitted(narrow, "GET /api/audit", "p")).toBe(false); // reading it needs operate
});

test("what somebody may as a member of a project takes the place of their role", () => {
  const member = { ...role("read", "create"), projects: { closed: ["read"] } };
  expect(isPermitted(member, "POST /api/prompt", "closed")).toBe(false);
  expect(isPermitted(member, "POST /api/prompt", "other")).toBe(true);
});

test("one's own account can be seen whatever the role", () => {
  expect(isPermitted(role(), "GET /api/me", "p")).toBe(true);
  expect(isPermitted(role(), "POST /api/tokens", "p")).toBe(true);
  expect(isPermitted(role(), "GET /api/workflows", "p")).toBe(false);
  expect(isPermitted(role(), "POST /api/login", "p")).toBe(true);
});
