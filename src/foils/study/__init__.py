"""All of it, for several sources: does a score predict the training?"""
