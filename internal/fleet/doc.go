// Package fleet runs worker processes for tests, by running the test's own binary again.
//
// A test binary that uses it calls [Main] first in its TestMain.
package fleet
