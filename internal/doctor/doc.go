// Package doctor looks at a server and its queues and says what is wrong, and what to do about it. It is what emqworker doctor runs.
//
// It changes nothing unless it is told to mend, and then only what it has just found.
package doctor
