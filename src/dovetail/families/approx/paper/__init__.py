"""The paper's own algorithms: RAJ, RAJHash, Prob and ProbHash as they are printed, mended where they cannot run."""
