package doctor

// JudgeVersion is the level of the finding about a server whose INFO says so.
func JudgeVersion(info string) Level {
	d := Doctor{}
	d.version("server", fields(info))
	return d.findings[0].Level
}
