// Command emqworker runs, feeds and inspects the queues of emq from a shell.
//
//	emqworker demo                                    watch a fleet hold a limit
//	emqworker limits set mail 100/1m                  at most 100 jobs a minute, for all workers together
//	emqworker enqueue mail '{"to":"ann@example.org"}' put a job in
//	emqworker run -q mail -c 20 --exec ./send         run a program for each job
//	emqworker stats mail                              see what waits, and what is left of the limit
//
// Results go to standard output, everything else to standard error. Every
// command that reads has --json, with fields in snake_case.
//
// The exit code is 0 when all went well, 1 after a failure, 2 for a command
// line that is wrong, 3 when Valkey cannot be reached, 4 when there is no such
// job or limit, 5 when limits check finds that a job would not be let through
// now, and 130 or 143 after SIGINT or SIGTERM.
//
// The server is the one of --url, else of VALKEY_URL, else of REDIS_URL, else
// valkey://127.0.0.1:6379. Passwords belong into the environment or into the
// file of --password-file; no error prints them.
package main
