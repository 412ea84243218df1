// Package ledger says whether a fleet kept its promises. It compares two records of one run: the audit stream, in which every script on
// the server says what it did, and a ledger, in which the processes say what they did, a line for each event.
//
// What it holds them to is ten invariants, I1 to I10; see [Invariants].
package ledger
